#pragma once

// Multiply-adds of a program's products by the bits of their operands: a product of a bits by b
// bits counts a/32 * b/32. Bits are found where the grids' instructions write, so that a product
// counts as what it computes, whatever the recipe says.

#include <cstdint>
#include <vector>

#include "kernels/ir/compiler.h"

namespace runnel {

// Immutable.
class ProgramMacs {
 public:
  // Of a micro-batch's forward and gradients.
  static ProgramMacs OfTraining(const Program& program);

  // With the bits of a level.
  double At(const GridBits& level) const;

 private:
  struct Product {
    int64_t macs = 0;
    GridRule first, second;  // of its operands; 32 bits: on no grid
  };

  std::vector<Product> products_;
};

}  // namespace runnel
