#pragma once

// What programs with gates have computed and chosen, counted where it is done.

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/ir/program.h"

namespace runnel {

// One caller at a time.
class WorkTally {
 public:
  virtual ~WorkTally() = default;
  // A product was computed: so many multiply-adds, with the grids' bits of this level.
  virtual void AddProduct(const Instruction& product, const GridBits& bits, int64_t macs) = 0;
};

// One caller at a time.
class ChoiceTally {
 public:
  virtual ~ChoiceTally() = default;
  // A gate has chosen in a forward of the training: so many samples by option. Gates come in the
  // model's order.
  virtual void AddChoice(const Instruction& gate, absl::Span<const int64_t> samples) = 0;
};

}  // namespace runnel
