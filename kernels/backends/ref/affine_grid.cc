#include "kernels/ir/arithmetic/affine_grid.h"

#include "kernels/backends/ref/ref_kernels.h"
#include "proto/base/random.h"

namespace runnel::ref {
namespace {

ValueRange RangeOf(const float* x, int64_t count) {
  ValueRange range;
  for (int64_t i = 0; i < count; ++i) range.Add(x[i]);
  return range.Normal();
}

int BitsOf(const Call& call) { return call.grid().BitsAt(call.context.grid_bits); }

void PutOnGrid(const float* x, int64_t count, const AffineGrid& grid, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = AffineValue(x[i], grid);
}

}  // namespace

absl::Status AffineWeight(const Call& call) {
  const int64_t channels = call.in_shape(0)[0];
  const int64_t size = call.in_shape(0).elements() / channels;
  for (int64_t c = 0; c < channels; ++c) {
    const float* w = call.in(0) + c * size;
    PutOnGrid(w, size, AffineGridOf(RangeOf(w, size), BitsOf(call)), call.out(0) + c * size);
  }
  return absl::OkStatus();
}

absl::Status AffineActivation(const Call& call) {
  const int64_t count = call.in_shape(0).elements();
  const ValueRange range = RangeOf(call.in(0), count);
  if (call.has_output(1)) {
    float* kept = call.out(1);
    const ValueRange next = NextKeptRange({kept[0], kept[1]}, range);
    kept[0] = next.low;
    kept[1] = next.high;
  }
  PutOnGrid(call.in(0), count, AffineGridOf(range, BitsOf(call)), call.out(0));
  return absl::OkStatus();
}

absl::Status AffineActivationEval(const Call& call) {
  const int64_t count = call.in_shape(0).elements();
  ValueRange range = {0, 0};
  if (call.has_input(1)) range = {call.in(1)[0], call.in(1)[1]};
  if (!IsSeen(range)) range = RangeOf(call.in(0), count);
  PutOnGrid(call.in(0), count, AffineGridOf(range, BitsOf(call)), call.out(0));
  return absl::OkStatus();
}

absl::Status AffineError(const Call& call) {
  const CounterRandom random(call.context.run_seed, RandomPurpose::kErrorRounding,
                             static_cast<uint64_t>(call.layer()) * kMaxOpsPerLayer + call.op(),
                             static_cast<uint64_t>(call.context.sequence.value()));
  const int64_t count = call.in_shape(0).elements();
  const AffineGrid grid = AffineGridOf(RangeOf(call.in(0), count), BitsOf(call));
  for (int64_t i = 0; i < count; ++i) {
    const float noise = AffineNoise(random.Bits(static_cast<uint64_t>(i)) >> 12);
    call.out(0)[i] = NoisyAffineValue(call.in(0)[i], noise, grid);
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
