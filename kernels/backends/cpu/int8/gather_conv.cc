#include "kernels/backends/cpu/int8/gather_conv.h"

#include <algorithm>
#include <tuple>

#include "kernels/backends/cpu/int8/gather_layout.h"
#include "kernels/backends/cpu/int8/gather_panels.h"
#include "kernels/backends/cpu/int8/gather_part.h"

namespace runnel::cpu {
namespace {

// Parts of the images for each thread: a slow core is not waited for long.
constexpr int64_t kPartsPerThread = 4;

// What the threads of one call share.
struct Shared : GatherAxes {
  Shared(const GatherSizes& sizes, bool packs_all, WorkspaceLayout& layout) {
    const GatherProblem& problem = sizes.problem;
    for (auto [axis, shape, outputs] :
         {std::tuple(&h, &problem.h, problem.out_h), std::tuple(&w, &problem.w, problem.out_w)}) {
      axis->outputs = static_cast<int32_t>(outputs);
      axis->runs = layout.Place<AxisRun>(outputs);
      axis->order = layout.Place<int32_t>(outputs);
      axis->class_begin = layout.Place<int32_t>(MaxAxisClasses(*shape, outputs) + 1);
      axis->source_offset = layout.Place<int64_t>(outputs);
      axis->out_offset = layout.Place<int64_t>(outputs);
    }
    panels = layout.Place<int8_t>(packs_all ? sizes.panels * sizes.panel_bytes : 0);
  }

  void FillAxes(const GatherProblem& problem) {
    const auto run = problem.input_gradient ? InputGradientRun : ForwardRun;
    for (int64_t o = 0; o < problem.out_h; ++o) h.runs[o] = run(problem.h, o);
    for (int64_t o = 0; o < problem.out_w; ++o) w.runs[o] = run(problem.w, o);
    SortByClass(h);
    SortByClass(w);
    for (int64_t i = 0; i < problem.out_w; ++i) {
      w.source_offset[i] = w.runs[w.order[i]].source;
      w.out_offset[i] = w.order[i] * problem.out_pixel;
    }
  }

  int8_t* panels;
};

// Whether threads divide the weight panels (each thread then copies the source) or the images. By
// panels if there are fewer images than threads, or if panels divide evenly and have more bytes
// than the source.
bool SplitsPanels(const GatherSizes& sizes, int64_t threads) {
  const GatherProblem& problem = sizes.problem;
  const int64_t source_bytes = problem.batch * problem.source_h * problem.source_w * sizes.padded_c;
  return problem.batch < threads ||
         (sizes.panels % threads == 0 && sizes.panels * sizes.panel_bytes > source_bytes);
}

// Packing goes ahead of the products where a panel is used more than once: by several threads or
// for several chunks of images.
bool PacksAll(const GatherSizes& sizes, int64_t threads, bool prepacked) {
  if (prepacked) return false;
  return sizes.chunk_images < sizes.problem.batch || (threads > 1 && !SplitsPanels(sizes, threads));
}

// Before a thread's first part.
void Clear(const GatherSizes& sizes, const GatherThread& memory) {
  const int64_t rows = int64_t{kChunkTiles} * sizes.kernels.tile_rows;
  for (int64_t r = 0; r < rows; ++r) {
    memory.partials[r] = memory.partial + r * sizes.kernels.panel_columns;
  }
  for (int64_t r = 0; r < sizes.kernels.tile_rows; ++r) {
    memory.sum_rows[r] = memory.sums + r * sizes.kernels.panel_columns;
  }
  std::fill_n(memory.max_lanes, kMaxLanes, 0u);
  *memory.saturated = 0;
  *memory.copied = -1;
}

}  // namespace

int64_t GatherWorkspaceBytes(const Int8Kernels& kernels, const GatherProblem& problem, int threads,
                             bool prepacked) {
  const GatherSizes sizes(kernels, problem);
  const bool packs_all = PacksAll(sizes, threads, prepacked);
  WorkspaceLayout layout(nullptr);
  Shared shared(sizes, packs_all, layout);
  return layout.used_bytes() +
         threads * GatherThread(sizes, !prepacked && !packs_all, nullptr).bytes;
}

void RunGather(const Int8Context& context, const GatherProblem& problem,
               const GatherOperands& operands) {
  const GatherSizes sizes(*context.kernels, problem);
  const int64_t threads = context.pool->threads();
  const bool prepacked = operands.packed != nullptr;
  const bool packs_all = PacksAll(sizes, threads, prepacked);
  WorkspaceLayout layout(context.workspace);
  Shared shared(sizes, packs_all, layout);
  shared.FillAxes(problem);
  if (packs_all) {
    context.pool->ParallelFor(sizes.panels, [&](int, int64_t p) {
      PackPanel(sizes, operands.weights, p, shared.panels + p * sizes.panel_bytes);
    });
  }
  const int8_t* all_panels = prepacked ? reinterpret_cast<const int8_t*>(operands.packed)
                                       : (packs_all ? shared.panels : nullptr);
  const bool own_panel = all_panels == nullptr;
  const int64_t thread_bytes = GatherThread(sizes, own_panel, nullptr).bytes;
  std::byte* thread_base = context.workspace + layout.used_bytes();
  for (int64_t t = 0; t < threads; ++t) {
    Clear(sizes, GatherThread(sizes, own_panel, thread_base + t * thread_bytes));
  }
  const auto run = [&](int thread, int64_t begin, int64_t end, int64_t first, int64_t last) {
    const GatherThread memory(sizes, own_panel, thread_base + thread * thread_bytes);
    GatherPart(sizes, shared, operands, memory).Run(begin, end, first, last, all_panels);
  };
  if (threads == 1) {
    run(0, 0, problem.batch, 0, sizes.panels);
  } else if (SplitsPanels(sizes, threads)) {
    for (int64_t n = 0; n < problem.batch; n += sizes.chunk_images) {
      const int64_t end = std::min(problem.batch, n + sizes.chunk_images);
      context.pool->ParallelFor(sizes.panels,
                                [&](int thread, int64_t p) { run(thread, n, end, p, p + 1); });
    }
  } else {
    const int64_t parts = std::min(problem.batch, threads * kPartsPerThread);
    context.pool->ParallelFor(parts, [&](int thread, int64_t i) {
      run(thread, problem.batch * i / parts, problem.batch * (i + 1) / parts, 0, sizes.panels);
    });
  }
  if (operands.max_lanes == nullptr) return;
  for (int64_t t = 0; t < threads; ++t) {
    const GatherThread memory(sizes, own_panel, thread_base + t * thread_bytes);
    if (operands.saturated != nullptr) *operands.saturated += *memory.saturated;
    for (int i = 0; i < kMaxLanes; ++i) {
      operands.max_lanes[i] = std::max(operands.max_lanes[i], memory.max_lanes[i]);
    }
  }
}

}  // namespace runnel::cpu
