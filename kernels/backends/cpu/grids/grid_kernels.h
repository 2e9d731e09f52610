#pragma once

// The instructions of products of codes and of sums in chunks on backend cpu: one row an OpCode, byte
// for byte what ref gives. Codes lie channels-last.

#include <algorithm>

#include "absl/types/span.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/grids/grid_loops.h"
#include "kernels/backends/cpu/int8/int8_kernels.h"

namespace runnel::cpu {

absl::Span<const KernelRow> GridKernels();

// code_tensors.cc
absl::Status AffineWeightCodes(absl::Span<const Call> calls);
absl::Status AffineActivationCodes(absl::Span<const Call> calls);  // in evaluation, too
absl::Status AffineErrorCodes(absl::Span<const Call> calls);
absl::Status PackCodes(absl::Span<const Call> calls);
absl::Status UnpackCodes(absl::Span<const Call> calls);
int BitsOf(const Call& codes);
// What training kept for evaluation; not IsSeen where there is nothing.
ValueRange KeptRange(const Call& codes);
void KeepRange(const Call& codes, const ValueRange& range);
// Of a tensor on one grid; nans: whether there is one, by part.
void StoreGrid(const Call& codes, const AffineGrid& grid, const bool* nans, int64_t count);

// fixed_points.cc, fixed_norm.cc and range_norm.cc, of floats
absl::Status AdaptWidth(absl::Span<const Call> calls);
absl::Status FixedPoint(absl::Span<const Call> calls);
absl::Status ShiftError(absl::Span<const Call> calls);
absl::Status FlagError(absl::Span<const Call> calls);
absl::Status ShiftedReluInputGradient(absl::Span<const Call> calls);
absl::Status FixedNormForward(absl::Span<const Call> calls);
absl::Status FixedNormEval(absl::Span<const Call> calls);
absl::Status FixedNormInputGradient(absl::Span<const Call> calls);
absl::Status RangeNormForward(absl::Span<const Call> calls);
absl::Status RangeNormEval(absl::Span<const Call> calls);
absl::Status RangeNormInputGradient(absl::Span<const Call> calls);

// symmetric_codes.cc
ValueRange WholeRange(const Call& call, size_t input = 0);  // of all of it
// max|x|; of no value 0.
inline float LargestOf(const ValueRange& range) {
  return std::max(0.0f, std::max(-range.low, range.high));
}
absl::Status SymmetricWeightCodes(absl::Span<const Call> calls);
absl::Status SymmetricActivationCodes(absl::Span<const Call> calls);
absl::Status SymmetricActivationCodesEval(absl::Span<const Call> calls);
absl::Status SymmetricErrorCodes(absl::Span<const Call> calls);
absl::Status ClippedErrorCodes(absl::Span<const Call> calls);

// made_codes.cc, behind what makes the values (fused_steps.h)
absl::Status CodesOfNorm(absl::Span<const Call> calls);
absl::Status CodesOfSum(absl::Span<const Call> calls);
absl::Status CodesOfNormGradient(absl::Span<const Call> calls);
// code_gather.cc
absl::Status CodesForward(absl::Span<const Call> calls);
absl::Status CodesInputGradient(absl::Span<const Call> calls);
// code_weight_gradient.cc
absl::Status CodesWeightGradient(absl::Span<const Call> calls);
// multi_level.cc and chunk_products.cc, of floats
absl::Status PutOnLevels(absl::Span<const Call> calls);
absl::Status ChunkedForward(absl::Span<const Call> calls);
absl::Status ChunkedInputGradient(absl::Span<const Call> calls);
absl::Status ChunkedWeightGradient(absl::Span<const Call> calls);

// The row of the machine's instruction set whose products' operands may be -128 (grid_loops.cc).
// right_bits: of the codes that are packed as panels, the weights or the weight-gradient's x. With 7 or
// fewer one instruction has two products' sum, where the machine has no dot products.
const Int8Kernels& RowOfCodes(const Machine& machine, int right_bits = 8);
// The grids of codes that lie in this operand; of samples by choice, in its first row.
inline CodeGrids GridsAt(const Call& call, size_t i) {
  const Shape& shape = call.in_shape(i);
  return CodeGrids(call.in(i), shape[shape.rank() - 1]);
}
// The lower parts of the gradient's codes, of wide ones; else null.
inline const int8_t* LowerCodes(const Call& call) {
  const bool is_wide = call.inputs.size() > 4 && GridsAt(call, 2).is_wide();
  return is_wide ? call.in<int8_t>(4) : nullptr;
}

}  // namespace runnel::cpu
