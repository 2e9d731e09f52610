#include "kernels/backends/cpu/int8/gather_layout.h"

#include <algorithm>

#include "proto/base/host/caches.h"

namespace runnel::cpu {
namespace {

// What is copied at a time stays in the second-level cache beside a panel and partial sums, or
// beside all panels where the panels take less than half of it. More than 1 MiB at a time was never
// quicker.
constexpr int64_t kMostCopiedBytes = 1 << 20;
constexpr int64_t kFewCopiedShare = 8;    // of the cache: one part of so many
constexpr int64_t kSmallPanelsShare = 2;  // the same

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Blocks are whole taps, or even parts of one tap.
int64_t BlockSteps(int64_t taps, int64_t tap_steps, int64_t most) {
  if (tap_steps >= most) return DivideUp(tap_steps, DivideUp(tap_steps, most));
  const int64_t blocks = DivideUp(taps * tap_steps, most);
  const int64_t block_taps = DivideUp(taps, blocks);
  return std::max<int64_t>(1, std::min(block_taps, most / tap_steps)) * tap_steps;
}

}  // namespace

GatherSizes::GatherSizes(const Int8Kernels& the_kernels, const GatherProblem& the_problem)
    : kernels(the_kernels), problem(the_problem) {
  padded_c = RoundUp(problem.source_c, kernels.k_group);
  copies_source = (kernels.a_bias != 0 && !kernels.adds_bias) ||
                  (padded_c != problem.source_pixel && !problem.pixels_overlap);
  tap_steps = padded_c / kernels.k_group;
  steps = problem.taps() * tap_steps;
  block_steps = BlockSteps(problem.taps(), tap_steps, kernels.panel_steps);
  panels = DivideUp(problem.out_c, kernels.panel_columns);
  starts_offset = RoundUp(steps * kernels.k_group * Width(0), 64);
  panel_bytes = starts_offset + RoundUp(problem.taps() * Width(0) * 4, 64);
  flat = problem.taps() == 1 && problem.h.stride == 1 && problem.w.stride == 1 &&
         problem.h.pad == 0 && problem.w.pad == 0 && problem.source_h == problem.out_h &&
         problem.source_w == problem.out_w;
  const int64_t image_bytes = problem.source_h * problem.source_w * padded_c;
  const int64_t cache = std::min(SecondLevelBytes(), kMostCopiedBytes);
  small_panels = panels * panel_bytes <= cache / kSmallPanelsShare;
  const int64_t copied = small_panels ? cache / kFewCopiedShare : cache;
  chunk_images = std::clamp<int64_t>(copied / image_bytes, 1, problem.batch);
  max_classes = MaxAxisClasses(problem.h, problem.out_h) * MaxAxisClasses(problem.w, problem.out_w);
}

int64_t GatherSizes::Columns(int64_t panel) const {
  return std::min<int64_t>(kernels.panel_columns, problem.out_c - panel * kernels.panel_columns);
}

int64_t GatherSizes::Width(int64_t panel) const {
  return RoundUp(Columns(panel), kernels.column_unit);
}

GatherThread::GatherThread(const GatherSizes& sizes, bool own_panel, std::byte* base) {
  const GatherProblem& problem = sizes.problem;
  const int64_t rows = int64_t{kChunkTiles} * sizes.kernels.tile_rows;
  WorkspaceLayout layout(base);
  const int64_t image_bytes = problem.source_h * problem.source_w * sizes.padded_c;
  source = layout.Place<uint8_t>(sizes.copies_source ? sizes.chunk_images * image_bytes : 0);
  copied = layout.Place<int64_t>(1);
  panel = layout.Place<int8_t>(own_panel ? sizes.panel_bytes : 0);
  starts = layout.Place<int32_t>(sizes.max_classes * kMaxPanelColumns);
  segments = layout.Place<Int8Segment>(problem.h.kernel);
  partial = layout.Place<int32_t>(rows * sizes.kernels.panel_columns);
  tiles = layout.Place<GatherTile>(kChunkTiles);
  a = layout.Place<const uint8_t*>(rows);
  place = layout.Place<int64_t>(rows);
  partials = layout.Place<int32_t*>(rows);
  sums = layout.Place<int32_t>(int64_t{sizes.kernels.tile_rows} * sizes.kernels.panel_columns);
  sum_rows = layout.Place<int32_t*>(sizes.kernels.tile_rows);
  max_lanes = layout.Place<uint32_t>(kMaxLanes);
  saturated = layout.Place<int64_t>(1);
  bytes = layout.used_bytes();
}

}  // namespace runnel::cpu
