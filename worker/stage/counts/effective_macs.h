#pragma once

// Multiply-adds of a program's products by the bits of their operands: a product of a bits by b
// bits counts a/32 * b/32. Bits are found where the grids' instructions write, so that a product
// counts as what it computes, whatever the recipe says.

#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/ir/compiler.h"
#include "kernels/ir/work_tally.h"

namespace runnel {

// Immutable.
class ProgramMacs {
 public:
  // Of a micro-batch's forward and gradients.
  static ProgramMacs OfTraining(const Program& program);

  // With the bits of a level.
  double At(const GridBits& level) const;
  // Of whatever bits.
  double done() const;
  // The share that a multiply-add of this instruction counts; 1 for one that is not of the program.
  double ShareOf(const Instruction& instruction, const GridBits& level) const;

 private:
  struct Product {
    const Instruction* instruction = nullptr;
    int64_t macs = 0;
    GridRule first, second;  // of its operands; 32 bits: on no grid
  };

  static double ShareOf(const Product& product, const GridBits& level);

  std::vector<Product> products_;
};

// What the kernels of a stage of a model with gates have computed.
class StageWork final : public WorkTally {
 public:
  // The program whose products are counted from now on; `macs` is of it and outlives that.
  void Begin(const ProgramMacs& macs) { macs_ = &macs; }
  void AddProduct(const Instruction& product, const GridBits& bits, int64_t macs) override;
  // Of a program without gates, whose kernels compute all samples.
  void AddAll(const ProgramMacs& macs, const GridBits& bits);

  double done() const { return done_; }
  double effective() const { return effective_; }

 private:
  const ProgramMacs* macs_ = nullptr;
  std::atomic<double> done_ = 0, effective_ = 0;
};

}  // namespace runnel
