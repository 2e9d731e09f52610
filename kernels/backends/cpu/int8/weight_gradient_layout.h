#pragma once

// Sizes and memory of one weight-gradient (weight_gradient.h).

#include <cstdint>

#include "kernels/backends/cpu/int8/weight_gradient.h"
#include "kernels/backends/cpu/int8/workspace_layout.h"

namespace runnel::cpu {

// Mapping of pixels to steps.
enum class PixelMode {
  kImages,  // k_group images side by side
  kFlat,    // 1x1, stride 1: pixels one after the other
  kUnfold,  // im2col, then the same
};

inline constexpr int64_t kUnfoldSlackBytes = 16;

struct WeightGradientSizes {
  WeightGradientSizes(const Int8Kernels& kernels, const WeightGradientProblem& problem);

  PixelMode mode;
  ConvShape shape;        // as computed: 1x1 on images of one pixel unless kImages
  int64_t x_pixel;        // of x, or of the unfolded x
  int64_t chunk_images;   // images of one chunk, a multiple of k_group
  int64_t chunk_rows;     // output rows of one chunk
  int64_t x_rows;         // input rows that a chunk reads
  int64_t a_panel_bytes;  // dy of tile_rows channels
  int64_t a_panels;
  int64_t b_panel_bytes;  // x of panel_columns channels

  // Output channels of thread t: [begin, end), in whole panels of A.
  int64_t FirstChannel(int64_t t, int64_t threads) const;

  const Int8Kernels& kernels;
  const WeightGradientProblem& problem;
};

struct WeightGradientThread {
  WeightGradientThread(const WeightGradientSizes& sizes, PartialSums partial, int threads,
                       std::byte* base);

  uint8_t* a;
  int8_t* b;
  int8_t* unfolded;
  int32_t* start;         // kMaxPanelColumns
  Int8Segment* segments;  // chunk_rows, times out_w where the stride leaves gaps
  int32_t* sums;  // sums of this thread's channels; null for kInPlace, and kRounded in one chunk
  int32_t* tile;  // [row][kMaxPanelColumns]: of one tile, on their way to be rounded
  uint32_t* max_lanes;
  int64_t* saturated;  // counted by kernels, read by nobody
  int64_t bytes;
};

}  // namespace runnel::cpu
