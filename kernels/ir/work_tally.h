#pragma once

// What programs with gates have computed, counted where it is done.

#include <cstdint>

#include "kernels/ir/program.h"

namespace runnel {

// One caller at a time.
class WorkTally {
 public:
  virtual ~WorkTally() = default;
  // A product was computed: so many multiply-adds, with the grids' bits of this level.
  virtual void AddProduct(const Instruction& product, const GridBits& bits, int64_t macs) = 0;
};

}  // namespace runnel
