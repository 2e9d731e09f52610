#pragma once

// Sizes and memory of one gathering convolution (gather_conv.h).

#include <cstdint>

#include "kernels/backends/cpu/int8/gather_conv.h"

namespace runnel::cpu {

// Tiles whose partial sums wait in the second-level cache while the panel goes block by block.
inline constexpr int kChunkTiles = 64;

// Steps and panels: what depends on the geometry of the kernels.
struct GatherSizes {
  GatherSizes(const Int8Kernels& kernels, const GatherProblem& problem);

  int64_t padded_c;    // channels of a source pixel as they are read, a multiple of k_group
  bool copies_source;  // biased, padded or one of several groups; else read in place
  int64_t tap_steps;
  int64_t steps;        // steps of the whole reduction
  int64_t block_steps;  // steps of a block of the reduction
  int64_t panels;
  int64_t panel_bytes;    // bytes of a full panel and its starts, a multiple of 64
  int64_t starts_offset;  // place of the starts in a panel
  bool small_panels;      // all of them take less than half of the second-level cache
  bool flat;              // 1x1, stride 1, no padding: an output a pixel
  int64_t chunk_images;   // sources that are copied at a time
  int64_t max_classes;

  int64_t Columns(int64_t panel) const;  // of out_c
  int64_t Width(int64_t panel) const;    // columns rounded up

  const Int8Kernels& kernels;
  const GatherProblem& problem;
};

// One tile: rows of one class.
struct GatherTile {
  int32_t class_h, class_w;
  int32_t rows;
};

// The memory of one thread.
struct GatherThread {
  GatherThread(const GatherSizes& sizes, bool own_panel, std::byte* base);

  uint8_t* source;        // copied images, chunk_images
  int64_t* copied;        // the first of them; -1: none yet
  int8_t* panel;          // own_panel only
  int32_t* starts;        // [class][kMaxPanelColumns]
  Int8Segment* segments;  // kernel_h
  int32_t* partial;       // [tile][row][width]
  GatherTile* tiles;      // kChunkTiles
  const uint8_t** a;      // [tile][row]
  int64_t* place;         // [tile][row]: of its first column in the result
  int32_t** partials;     // [tile][row], into partial
  int32_t* sums;          // [row][width]: of one tile, on their way to be rescaled
  int32_t** sum_rows;     // [row], into sums
  uint32_t* max_lanes;
  int64_t* saturated;
  int64_t bytes;
};

}  // namespace runnel::cpu
