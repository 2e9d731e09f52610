#pragma once

// Matrix products C = A * B with B packed in panels. Only for kernels_*.cc.

#include "kernels/cpu/fp32/kernel_table.h"

namespace runnel::fp32 {

// Depth of a block of B whose panel (64 floats wide at most) stays in the first-level cache.
inline constexpr int64_t kDepthBlock = 128;
inline constexpr int kMaxPanelFloats = 64;

// Part of the depth: `count` segments, together kDepthBlock at most.
struct DepthBlock {
  Segment segments[kDepthBlock];
  int count = 0;
  int64_t depth = 0;
};

// ROWS x VECTORS sums.
template <typename V, int ROWS, int VECTORS>
struct ProductTile {
  typename V::Reg sum[ROWS][VECTORS];

  // From C, or where `first` from the bias (null: 0).
  [[gnu::always_inline]] inline void Start(float* const* c, int last, bool first,
                                           const float* bias) {
#pragma GCC unroll 24
    for (int r = 0; r < ROWS; ++r) {
      const float* from = first ? bias : c[r];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) {
        if (from == nullptr) {
          sum[r][v] = V::Zero();
        } else {
          const float* p = from + v * V::kWidth;
          sum[r][v] = v + 1 < VECTORS ? V::Load(p) : V::LoadPart(p, last);
        }
      }
    }
  }

  [[gnu::always_inline]] inline void Run(const float* const* a, const Segment& segment,
                                         const float* b) {
    const float* row[ROWS];
#pragma GCC unroll 24
    for (int r = 0; r < ROWS; ++r) row[r] = a[r] + segment.offset;
    for (int64_t k = 0; k < segment.length; ++k, b += VECTORS * V::kWidth) {
      typename V::Reg right[VECTORS];
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) right[v] = V::Load(b + v * V::kWidth);
#pragma GCC unroll 24
      for (int r = 0; r < ROWS; ++r) {
        const typename V::Reg left = V::Set1(row[r][k]);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) sum[r][v] = V::Fma(left, right[v], sum[r][v]);
      }
    }
  }

  [[gnu::always_inline]] inline void Finish(float* const* c, int last) const {
#pragma GCC unroll 24
    for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) {
        float* p = c[r] + v * V::kWidth;
        if (v + 1 < VECTORS) {
          V::Store(p, sum[r][v]);
        } else {
          V::StorePart(p, sum[r][v], last);
        }
      }
    }
  }
};

// All rows of one panel over one block of the depth; b is the panel's first row of the block.
template <typename V, int VECTORS>
void ProductPanel(const Product& p, const Panel& panel, const DepthBlock& block, const float* b,
                  bool first) {
  constexpr int kRows = V::kProductRows[VECTORS];
  const int last = panel.columns - (VECTORS - 1) * V::kWidth;
  const float* bias = p.bias == nullptr ? nullptr : p.bias + panel.begin;
  float unused[kMaxPanelFloats] = {};
  for (int64_t row = 0; row < p.rows; row += kRows) {
    // Rows past the last one repeat it and write to where nobody reads.
    const float* a[kRows];
    float* c[kRows];
    for (int r = 0; r < kRows; ++r) {
      const bool exists = row + r < p.rows;
      a[r] = p.a[exists ? row + r : p.rows - 1];
      c[r] = exists ? p.c[row + r] + panel.begin : unused;
    }
    ProductTile<V, kRows, VECTORS> tile;
    tile.Start(c, last, first, bias);
    const float* right = b;
    for (int s = 0; s < block.count; ++s) {
      tile.Run(a, block.segments[s], right);
      right += block.segments[s].length * VECTORS * V::kWidth;
    }
    tile.Finish(c, last);
  }
}

// The next block from segment *index, `*used` values of which are done.
static inline void NextDepthBlock(const Product& p, int64_t* index, int64_t* used,
                                  DepthBlock* block) {
  block->count = 0;
  block->depth = 0;
  while (*index < p.segment_count && block->depth < kDepthBlock) {
    const Segment& segment = p.segments[*index];
    const int64_t rest = segment.length - *used, room = kDepthBlock - block->depth;
    const int64_t length = rest < room ? rest : room;
    block->segments[block->count++] = {segment.offset + *used, length};
    block->depth += length;
    *used += length;
    if (*used == segment.length) {
      ++*index;
      *used = 0;
    }
  }
}

template <typename V>
void RunProduct(const Product& p) {
  int64_t index = 0, used = 0, done = 0;
  do {
    DepthBlock block;
    NextDepthBlock(p, &index, &used, &block);
    for (int64_t i = 0; i < p.panel_count; ++i) {
      const Panel& panel = p.panels[i];
      const float* b = p.b + panel.offset * p.depth + done * panel.vectors * V::kWidth;
      const bool first = done == 0;
      switch (panel.vectors) {
        case 1:
          ProductPanel<V, 1>(p, panel, block, b, first);
          break;
        case 2:
          if constexpr (V::kTileVectors >= 2) ProductPanel<V, 2>(p, panel, block, b, first);
          break;
        case 3:
          if constexpr (V::kTileVectors >= 3) ProductPanel<V, 3>(p, panel, block, b, first);
          break;
        default:
          if constexpr (V::kTileVectors >= 4) ProductPanel<V, 4>(p, panel, block, b, first);
      }
    }
    done += block.depth;
  } while (index < p.segment_count);
}

}  // namespace runnel::fp32
