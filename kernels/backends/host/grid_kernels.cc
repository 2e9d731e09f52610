#include "kernels/backends/host/grid_kernels.h"

#include <algorithm>
#include <cmath>

#include "kernels/backends/host/draws.h"
#include "kernels/ir/arithmetic/affine_grid.h"
#include "kernels/ir/arithmetic/float_grid.h"
#include "kernels/ir/arithmetic/multi_level.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"

namespace runnel::host {
namespace {

void PutOnSymmetricGrid(const float* x, int64_t count, float clip, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = SymmetricValue(x[i], clip);
}

// As the rule of the instruction says: by draws, or to the nearest.
void PutOnSymmetricGrid(const Instruction& instruction, const StepContext& context, const float* x,
                        int64_t count, float clip, float* y) {
  const GridRule& grid = instruction.grid;
  if (grid.draws == 0 || grid.to_nearest) return PutOnSymmetricGrid(x, count, clip, y);
  Draws draws(instruction, context, RandomPurpose::kRounding, grid.draws);
  for (int64_t i = 0; i < count; ++i) y[i] = NoisySymmetricValue(x[i], draws.Next(), clip);
}

}  // namespace

void SymmetricWeight(const Instruction& instruction, const StepContext& context, const float* x,
                     int64_t count, float* y) {
  PutOnSymmetricGrid(instruction, context, x, count, LargestMagnitude(x, count), y);
}

void SymmetricActivation(const Instruction& instruction, const StepContext& context, const float* x,
                         int64_t count, float* kept, float* y) {
  const float clip = LargestMagnitude(x, count);
  if (kept != nullptr) {
    const ValueRange next = NextKeptRange({kept[0], kept[1]}, {-clip, clip});
    kept[0] = next.low;
    kept[1] = next.high;
  }
  PutOnSymmetricGrid(instruction, context, x, count, clip, y);
}

void SymmetricActivationEval(const float* x, int64_t count, const float* kept, float* y) {
  const bool is_seen = kept != nullptr && IsSeen({kept[0], kept[1]});
  PutOnSymmetricGrid(x, count, is_seen ? kept[1] : LargestMagnitude(x, count), y);
}

void SymmetricError(const float* dy, int64_t count, float share, float* quantized) {
  ValueRange range;
  for (int64_t i = 0; i < count; ++i) range.Add(dy[i]);
  const SymmetricBounds bounds = ShareOfRange(range, share);
  for (int64_t i = 0; i < count; ++i) {
    const float not_below = dy[i] < bounds.low ? bounds.low : dy[i];
    quantized[i] = SymmetricValue(not_below > bounds.high ? bounds.high : not_below, bounds.clip());
  }
}

float ClippedError(const Instruction& instruction, const StepContext& context, const float* dy,
                   int64_t count, float* quantized) {
  const ClipChoice choice = ChooseClip(dy, count);
  Draws draws(instruction, context, RandomPurpose::kErrorRounding);
  for (int64_t i = 0; i < count; ++i)
    quantized[i] = NoisySymmetricValue(dy[i], draws.Next(), choice.clip);
  return choice.deviation;
}

void CounterDeviation(const float* dv, int64_t count, float deviation, bool adds, float* dw) {
  const float factor = runnel::CounterDeviation(deviation);
  for (int64_t i = 0; i < count; ++i) dw[i] = factor * dv[i] + (adds ? dw[i] : 0.0f);
}

int64_t GroupSizeOf(const Instruction& instruction, const Shape& shape) {
  const OpSpec& op = instruction.attributes;
  const int64_t row = shape.elements() / shape[0];
  if (instruction.code == OpCode::kMultiLevelWeight)
    return op.kind == OpKind::kConv ? op.kernel[0] * op.kernel[1] : row;
  return shape.rank() > 2 ? row / shape[1] : row;
}

void PutOnLevels(const Instruction& instruction, const StepContext& context, const Shape& shape,
                 const float* x, float* y) {
  const int64_t count = shape.elements();
  const float largest = LargestMagnitude(x, count);
  if (largest == 0 || !std::isfinite(largest)) {
    if (x != y) std::copy(x, x + count, y);
    return;
  }
  const GridRule& grid = instruction.grid;
  const MultiLevelFormat format = {grid.exponent_bits, grid.bits};
  const int stream = instruction.code == OpCode::kMultiLevelWeight ? 1 : 0;
  Draws draws(instruction, context,
              grid.is_gradient ? RandomPurpose::kErrorRounding : RandomPurpose::kRounding, stream);
  const int64_t size = GroupSizeOf(instruction, shape);
  for (int64_t at = 0; at < count; at += size) {
    const float scale = GroupScale(LargestMagnitude(x + at, size) / largest) * largest;
    for (int64_t i = at; i < at + size; ++i) {
      const float u = grid.to_nearest ? 0.5f : draws.Next();
      const float share = scale == 0 ? 0 : std::abs(x[i]) / scale;
      y[i] = std::copysign(MultiLevelValue(share, u, format) * scale, x[i]);
    }
  }
}

void PutOnSmallFloats(const GridRule& grid, const float* x, int64_t count, float* y) {
  const FloatGrid format(grid);
  for (int64_t i = 0; i < count; ++i) y[i] = format.Nearest(x[i]);
}

void RoundByDraws(const Instruction& instruction, const StepContext& context, float* values,
                  int64_t count, int slot) {
  constexpr int kSlotStreams = 1 << 16;  // more than an operator has tensors
  const FloatGrid format(instruction.grid);
  Draws draws(instruction, context.run_seed, RandomPurpose::kRounding,
              instruction.grid.draws + slot * kSlotStreams, context.step);
  for (int64_t i = 0; i < count; ++i) values[i] = format.ByDraw(values[i], draws.Next());
}

}  // namespace runnel::host
