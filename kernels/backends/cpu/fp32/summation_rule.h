#pragma once

// Inputs of the bytes of FP32 sums beside shapes and instruction set: where a sum is cut into
// partial sums. A change of one of these, or of the order of a sum anywhere else, raises kFp32Rule
// and writes tests/golden/fp32_rule.json anew: the number is part of the numerics class, so two
// releases that sum differently do not claim the same bytes.
//
// Excepted: convolutions that only evaluation computes with other sums (Instruction::winograd, D149).
// No weight depends on them: they lie behind the frozen front, and training has the direct sums. No
// dial reads an evaluation; only early stop does, with which two releases may end at different steps.

#include <cstdint>

namespace runnel::fp32 {

inline constexpr int kFp32Rule = 1;

// Floats of the sources and targets of one block of a convolution (BlockPlan): each block of a
// weight-gradient is added to the sums of those before it.
inline constexpr int64_t kBlockFloats = 1 << 17;
// Pixels of a weight-gradient that are summed before they are added to the others of the block.
inline constexpr int64_t kPixelBlock = 128;
// Rows of a batch normalisation's sums in single precision; double across them.
inline constexpr int64_t kPieceRows = 64;
// Pixels of a depthwise weight-gradient in single precision; double across them.
inline constexpr int64_t kDepthwisePixels = 256;

}  // namespace runnel::fp32
