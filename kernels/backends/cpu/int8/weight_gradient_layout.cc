#include "kernels/backends/cpu/int8/weight_gradient_layout.h"

#include <algorithm>

#include "proto/base/host/caches.h"

namespace runnel::cpu {
namespace {

// Narrower inputs leave too much of a panel unused tap by tap.
constexpr int64_t kFewChannels = 48;
// A chunk is one output row of k_group images at least; longer rows would leave the caches.
constexpr int64_t kLongRow = 4096;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Steps of a chunk. More of them write dw less often, fewer keep the packed dy in the second-level
// cache: 432 steps for the cache that they were tuned on, a share of them for a smaller one.
constexpr int64_t kMostPixelSteps = 432, kLeastPixelSteps = 54;

int64_t PixelSteps() {
  return std::clamp(kMostPixelSteps * SecondLevelBytes() / kTunedSecondLevelBytes, kLeastPixelSteps,
                    kMostPixelSteps);
}

PixelMode ModeOf(const Int8Kernels& kernels, const ConvShape& shape) {
  // Padding behind alone makes more outputs than inputs.
  const bool one_by_one = shape.taps() == 1 && shape.pad_h == 0 && shape.pad_w == 0 &&
                          shape.out_h <= shape.in_h && shape.out_w <= shape.in_w;
  if (one_by_one && shape.stride_h == 1 && shape.stride_w == 1) return PixelMode::kFlat;
  const int64_t images = RoundUp(shape.batch, kernels.k_group);
  const bool wasteful = (images - shape.batch) * 4 > shape.batch;
  if (wasteful || shape.out_w > kLongRow || (shape.taps() > 1 && shape.in_c < kFewChannels))
    return PixelMode::kUnfold;
  return PixelMode::kImages;
}

}  // namespace

WeightGradientSizes::WeightGradientSizes(const Int8Kernels& the_kernels,
                                         const WeightGradientProblem& the_problem)
    : shape(the_problem.shape), kernels(the_kernels), problem(the_problem) {
  mode = ModeOf(kernels, shape);
  x_pixel = problem.x_pixel;
  if (mode != PixelMode::kImages) {
    const ConvShape& s = problem.shape;
    shape = {.batch = s.batch * s.out_h * s.out_w, .in_c = s.taps() * s.in_c, .out_c = s.out_c};
    if (mode == PixelMode::kUnfold) x_pixel = shape.in_c;
  }
  const int64_t group = kernels.k_group;
  const int64_t target = std::min(kernels.panel_steps, PixelSteps()) * group;
  const int64_t images = RoundUp(shape.batch, group), plane = shape.out_h * shape.out_w;
  if (plane * group >= target) {
    chunk_images = group;
    chunk_rows = std::clamp<int64_t>(target / (shape.out_w * group), 1, shape.out_h);
    chunk_rows = DivideUp(shape.out_h, DivideUp(shape.out_h, chunk_rows));
  } else {
    const int64_t most = std::min(images, target / (plane * group) * group);
    chunk_images = RoundUp(DivideUp(images, DivideUp(images, most)), group);
    chunk_rows = shape.out_h;
  }
  x_rows = std::min(shape.in_h, (chunk_rows - 1) * shape.stride_h + shape.kernel_h);
  // An odd number of cache lines: panels that are written side by side share no set.
  a_panel_bytes = RoundUp(chunk_rows * shape.out_w * chunk_images * kernels.tile_rows, 64) | 64;
  a_panels = DivideUp(shape.out_c, kernels.tile_rows);
  b_panel_bytes =
      x_rows * shape.in_w * chunk_images *
      std::min<int64_t>(kernels.panel_columns, RoundUp(shape.in_c, kernels.column_unit));
}

int64_t WeightGradientSizes::FirstChannel(int64_t t, int64_t threads) const {
  return std::min(shape.out_c, a_panels * t / threads * kernels.tile_rows);
}

WeightGradientThread::WeightGradientThread(const WeightGradientSizes& sizes, PartialSums partial,
                                           int threads, std::byte* base) {
  const ConvShape& shape = sizes.shape;
  const int64_t panels = (sizes.a_panels + threads - 1) / threads;
  WorkspaceLayout layout(base);
  a = layout.Place<uint8_t>(panels * sizes.a_panel_bytes);
  b = layout.Place<int8_t>(sizes.b_panel_bytes);
  unfolded = layout.Place<int8_t>(
      sizes.mode == PixelMode::kUnfold ? sizes.chunk_images * shape.in_c + kUnfoldSlackBytes : 0);
  start = layout.Place<int32_t>(kMaxPanelColumns);
  segments = layout.Place<Int8Segment>(sizes.chunk_rows * (shape.stride_w == 1 ? 1 : shape.out_w));
  const bool one_chunk = sizes.chunk_images >= shape.batch && sizes.chunk_rows >= shape.out_h;
  const bool waits =
      partial == PartialSums::kWide || (partial == PartialSums::kRounded && !one_chunk);
  sums = layout.Place<int32_t>(waits ? panels * sizes.kernels.tile_rows * shape.taps() * shape.in_c
                                     : 0);
  if (!waits) sums = nullptr;
  tile = layout.Place<int32_t>(
      partial == PartialSums::kRounded ? int64_t{kMaxTileRows} * kMaxPanelColumns : 0);
  max_lanes = layout.Place<uint32_t>(kMaxLanes);
  saturated = layout.Place<int64_t>(1);
  bytes = layout.used_bytes();
}

}  // namespace runnel::cpu
