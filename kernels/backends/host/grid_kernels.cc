#include "kernels/backends/host/grid_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/ir/arithmetic/affine_grid.h"
#include "kernels/ir/arithmetic/multi_level.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"
#include "proto/base/random.h"

namespace runnel::host {
namespace {

// Draws in [0, 1) of elements that are asked for in turn.
class Draws {
 public:
  Draws(const Instruction& instruction, const StepContext& context, RandomPurpose purpose,
        bool is_weight = false)
      : random_(context.run_seed, purpose,
                static_cast<uint64_t>(instruction.layer) * kMaxOpsPerLayer +
                    static_cast<uint64_t>(instruction.op) + (is_weight ? uint64_t{1} << 32 : 0),
                static_cast<uint64_t>(context.sequence.value())) {}

  float Next() {
    if (at_ % 4 == 0) block_ = random_.Block(at_ / 4);
    return static_cast<float>(block_[at_++ % 4] >> 12) * 0x1p-20f;
  }

 private:
  const CounterRandom random_;
  std::array<uint32_t, 4> block_ = {};
  uint64_t at_ = 0;
};

int64_t GroupSizeOf(const Instruction& instruction, const Shape& shape) {
  const OpSpec& op = instruction.attributes;
  const int64_t row = shape.elements() / shape[0];
  if (instruction.code == OpCode::kMultiLevelWeight)
    return op.kind == OpKind::kConv ? op.kernel[0] * op.kernel[1] : row;
  return shape.rank() > 2 ? row / shape[1] : row;
}

}  // namespace

void PutOnSymmetricGrid(const float* x, int64_t count, float clip, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = SymmetricValue(x[i], clip);
}

void SymmetricActivation(const float* x, int64_t count, float* kept, float* y) {
  const float clip = LargestMagnitude(x, count);
  if (kept != nullptr) {
    const ValueRange next = NextKeptRange({kept[0], kept[1]}, {-clip, clip});
    kept[0] = next.low;
    kept[1] = next.high;
  }
  PutOnSymmetricGrid(x, count, clip, y);
}

void SymmetricActivationEval(const float* x, int64_t count, const float* kept, float* y) {
  const bool is_seen = kept != nullptr && IsSeen({kept[0], kept[1]});
  PutOnSymmetricGrid(x, count, is_seen ? kept[1] : LargestMagnitude(x, count), y);
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
  const bool is_weight = instruction.code == OpCode::kMultiLevelWeight;
  Draws draws(instruction, context,
              grid.is_gradient ? RandomPurpose::kErrorRounding : RandomPurpose::kRounding,
              is_weight);
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

}  // namespace runnel::host
