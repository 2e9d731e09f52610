// Grids of a range (kernels/ir/arithmetic/affine_grid.h). Any layout, all operands alike; draws are
// in the logical (N, C, spatial) order, whatever the layout.

#include "kernels/ir/arithmetic/affine_grid.h"

#include <algorithm>

#include "kernels/backends/cpu/fp32/error_draws.h"
#include "kernels/backends/cpu/fp32/fp32_kernels.h"

namespace runnel::fp32 {
namespace {

constexpr int64_t kChunk = 1 << 14;  // elements of one thread at least
constexpr int64_t kLanes = 16;       // ranges that are found beside one another

int BitsOf(const Call& call) { return call.instruction->grid.BitsAt(call.context->grid_bits); }

ValueRange RangeOf(const float* x, int64_t count) {
  float low[kLanes], high[kLanes];
  std::fill(low, low + kLanes, ValueRange().low);
  std::fill(high, high + kLanes, ValueRange().high);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = x[i + lane];
      low[lane] = value < low[lane] ? value : low[lane];
      high[lane] = value > high[lane] ? value : high[lane];
    }
  }
  ValueRange range;
  for (int64_t lane = 0; lane < kLanes; ++lane) range.Add(ValueRange{low[lane], high[lane]});
  for (; i < count; ++i) range.Add(x[i]);
  return range;
}

// body(chunk, begin, size) of each chunk of `count` elements.
template <typename Body>
void OverChunks(const Call& call, int64_t count, const Body& body) {
  ParallelFor(call.machine, (count + kChunk - 1) / kChunk, [&](int, int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk)
      body(chunk, chunk * kChunk, std::min(count - chunk * kChunk, kChunk));
  });
}

ValueRange RangeOf(const Call& call, const float* x, int64_t count) {
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  ValueRange* parts = call.Take<ValueRange>(chunks);
  OverChunks(call, count, [&](int64_t chunk, int64_t at, int64_t size) {
    parts[chunk] = RangeOf(x + at, size);
  });
  ValueRange range;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) range.Add(parts[chunk]);
  return range.Normal();
}

void PutOnGrid(const float* x, int64_t count, const AffineGrid& grid, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = AffineValue(x[i], grid);
}

void PutOnGrid(const Call& call, const ValueRange& range) {
  const AffineGrid grid = AffineGridOf(range, BitsOf(call));
  OverChunks(call, call.in_shape(0).elements(), [&](int64_t, int64_t at, int64_t size) {
    PutOnGrid(call.in(0) + at, size, grid, call.out(0) + at);
  });
}

}  // namespace

absl::Status AffineWeight(Calls calls) {
  const Call& call = calls[0];
  const int64_t channels = call.instruction->grid.of_tensor ? 1 : call.in_shape(0)[0];
  const int64_t size = call.in_shape(0).elements() / channels;
  ParallelFor(call.machine, channels, [&](int, int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const float* w = call.in(0) + c * size;
      const ValueRange range = RangeOf(w, size).Normal();
      PutOnGrid(w, size, AffineGridOf(range, BitsOf(call)), call.out(0) + c * size);
    }
  });
  return absl::OkStatus();
}

absl::Status AffineActivation(Calls calls) {
  const Call& call = calls[0];
  const ValueRange range = RangeOf(call, call.in(0), call.in_shape(0).elements());
  if (call.outputs.size() > 1) {
    float* kept = call.out(1);
    const ValueRange next = NextKeptRange({kept[0], kept[1]}, range);
    kept[0] = next.low;
    kept[1] = next.high;
  }
  PutOnGrid(call, range);
  return absl::OkStatus();
}

absl::Status AffineActivationEval(Calls calls) {
  const Call& call = calls[0];
  ValueRange range = {0, 0};
  if (call.inputs.size() > 1) range = {call.in(1)[0], call.in(1)[1]};
  if (!IsSeen(range)) range = RangeOf(call, call.in(0), call.in_shape(0).elements());
  PutOnGrid(call, range);
  return absl::OkStatus();
}

absl::Status AffineError(Calls calls) {
  const Call& call = calls[0];
  const ValueRange range = RangeOf(call, call.in(0), call.in_shape(0).elements());
  const AffineGrid grid = AffineGridOf(range, BitsOf(call));
  OverSampleDraws(call, [&](int, int64_t at, int64_t size, const uint32_t* draw) {
    const float* dy = call.in(0) + at;
    float* out = call.out(0) + at;
    for (int64_t i = 0; i < size; ++i) out[i] = NoisyAffineValue(dy[i], AffineNoise(draw[i]), grid);
  });
  return absl::OkStatus();
}

}  // namespace runnel::fp32
