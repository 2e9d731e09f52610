#include "kernels/backends/cpu/int8/gather_panels.h"

#include <algorithm>
#include <utility>

namespace runnel::cpu {
namespace {

// Values of the reduction that are packed before they are summed, a multiple of every k_group: so
// many that the hardware follows each column.
constexpr int64_t kPackedPiece = 8192;

// Weights of columns [column, column + n) and `k` channels of one slot, from channel `first` on.
void PackSlotPiece(const GatherSizes& sizes, const int8_t* weights, int64_t slot, int64_t first,
                   int64_t k, int64_t column, int n, int width, int8_t* panel) {
  const GatherProblem& problem = sizes.problem;
  const int64_t row = problem.weight_row;
  if (!problem.input_gradient) {
    const int8_t* from = weights + column * row + slot * problem.source_c + first;
    sizes.kernels.pack_b_columns(from, row, k, n, width, panel);
    return;
  }
  const int64_t tap = InputGradientTap(problem.h, slot / problem.w.kernel) * problem.w.kernel +
                      InputGradientTap(problem.w, slot % problem.w.kernel);
  const int8_t* from = weights + first * row + tap * problem.out_c + column;
  sizes.kernels.pack_b_rows(from, row, k, n, width, panel);
}

}  // namespace

GatherProblem GatherProblemOf(const ConvShape& shape, bool input_gradient) {
  GatherProblem problem;
  problem.input_gradient = input_gradient;
  problem.batch = shape.batch;
  problem.h = {shape.in_h, shape.out_h, shape.kernel_h, shape.stride_h, shape.pad_h};
  problem.w = {shape.in_w, shape.out_w, shape.kernel_w, shape.stride_w, shape.pad_w};
  problem.source_h = shape.in_h;
  problem.source_w = shape.in_w;
  problem.source_c = shape.group_in();
  problem.source_pixel = shape.in_c;
  problem.out_h = shape.out_h;
  problem.out_w = shape.out_w;
  problem.out_c = shape.group_out();
  problem.out_pixel = shape.out_c;
  if (input_gradient) {
    std::swap(problem.source_h, problem.out_h);
    std::swap(problem.source_w, problem.out_w);
    std::swap(problem.source_c, problem.out_c);
    std::swap(problem.source_pixel, problem.out_pixel);
  }
  problem.weight_row = shape.taps() * shape.group_in();
  return problem;
}

GatherProblem MergeTapsOfRows(const ConvShape& shape) {
  GatherProblem problem = GatherProblemOf(shape, /*input_gradient=*/false);
  problem.source_w = shape.in_w / shape.stride_w;
  problem.source_c = shape.kernel_w * shape.in_c;
  problem.source_pixel = shape.stride_w * shape.in_c;
  problem.w = {.in = problem.source_w, .out = shape.out_w};
  problem.pixels_overlap = true;
  return problem;
}

void PackPanel(const GatherSizes& sizes, const int8_t* weights, int64_t p, int8_t* panel) {
  const Int8Kernels& kernels = sizes.kernels;
  const int n = static_cast<int>(sizes.Columns(p)), width = static_cast<int>(sizes.Width(p));
  auto* start = reinterpret_cast<int32_t*>(panel + sizes.starts_offset);
  for (int64_t slot = 0; slot < sizes.problem.taps(); ++slot, start += width) {
    std::fill_n(start, width, 0);
    // In pieces that are still in the second-level cache when they are summed.
    for (int64_t first = 0; first < sizes.problem.source_c; first += kPackedPiece) {
      const int64_t k = std::min(kPackedPiece, sizes.problem.source_c - first);
      PackSlotPiece(sizes, weights, slot, first, k, p * kernels.panel_columns, n, width, panel);
      const Int8Segment piece{.steps = (k + kernels.k_group - 1) / kernels.k_group};
      if (kernels.a_bias != 0) kernels.column_start(panel, &piece, 1, width, start);
      panel += piece.steps * kernels.k_group * width;
    }
  }
}

int64_t AllPanelsBytes(const Int8Kernels& kernels, const GatherProblem& problem) {
  const GatherSizes sizes(kernels, problem);
  return sizes.panels * sizes.panel_bytes;
}

void PackAllPanels(const Int8Kernels& kernels, const GatherProblem& problem, const int8_t* weights,
                   std::byte* packed) {
  const GatherSizes sizes(kernels, problem);
  for (int64_t p = 0; p < sizes.panels; ++p) {
    PackPanel(sizes, weights, p, reinterpret_cast<int8_t*>(packed) + p * sizes.panel_bytes);
  }
}

}  // namespace runnel::cpu
