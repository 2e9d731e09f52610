#pragma once

// The operations that make the sums of a product of codes, and where their results lie. Pure functions;
// any thread.

#include <cstdint>
#include <vector>

#include "kernels/backends/hexagon/op_list.h"
#include "kernels/backends/host/geometry.h"
#include "kernels/ir/program.h"

namespace runnel::hexagon {

// Offsets in the shared memory, in bytes.
struct CodeOperands {
  uint32_t left = 0;
  uint32_t low = 0;  // lower parts of the left codes; 0: they have 8 bits at most
  uint32_t right = 0;
  // kTailBytes of zeros, then ones.
  uint32_t ones = 0;
  uint32_t sums = 0;
};

// Bytes before the ones and before the sums: what operations take for the tails of their operands.
inline constexpr uint32_t kTailRoom = 128;

// Where sums lie, by upper and lower parts; lower 0: there are none.
struct SumPlace {
  uint32_t upper = 0;
  uint32_t lower = 0;
};

struct CodeSums {
  std::vector<DspOp> ops;
  SumPlace products, left, right;
  // Bytes from CodeOperands::ones and sums on.
  int64_t ones_bytes = 0;
  int64_t sums_bytes = 0;
};

// Sums of 64 bits for weight-gradients, whose terms have no bound, else of 32.
constexpr uint32_t SumBytes(OpCode code) {
  return code == OpCode::kCodesWeightGradient ? sizeof(int64_t) : sizeof(int32_t);
}

// code: kCodesForward, kCodesInputGradient or kCodesWeightGradient, of an operator of this geometry.
CodeSums SumsOfCodes(OpCode code, bool is_linear, const host::Geometry& geometry,
                     const CodeOperands& operands);

}  // namespace runnel::hexagon
