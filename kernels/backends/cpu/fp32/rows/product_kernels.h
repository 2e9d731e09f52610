#pragma once

// Matrix products C = A * B with B packed in panels. Only for kernels_*.cc.

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/fp32/rows/finish_columns.h"

namespace runnel::fp32 {

// Depth of a block of B whose panel (64 floats wide at most) stays in the first-level cache.
inline constexpr int64_t kDepthBlock = 128;

// The segments of a group of rows that meet one block of B.
struct DepthBlock {
  Segment segments[kDepthBlock];
  int count = 0;
};

// ROWS x VECTORS sums.
template <typename V, int ROWS, int VECTORS>
struct ProductTile {
  typename V::Reg sum[ROWS][VECTORS];

  // Starts from C, or for `first` from the bias (null: 0).
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

  // Of the first `rows` rows, each once: what is added may lie where they are written.
  [[gnu::always_inline]] inline void FinishSums(float* const* c, int last, int rows,
                                                const SumFinish& f, int64_t column) const {
#pragma GCC unroll 4
    for (int v = 0; v + 1 < VECTORS; ++v) FinishVector<false>(c, v, V::kWidth, rows, f, column);
    FinishVector<true>(c, VECTORS - 1, last, rows, f, column);
  }
  template <bool PART>
  [[gnu::always_inline]] inline void FinishVector(float* const* c, int v, int lanes, int rows,
                                                  const SumFinish& f, int64_t column) const {
    const FinishColumns<V, PART> columns(f, column + v * V::kWidth, lanes);
#pragma GCC unroll 24
    for (int r = 0; r < ROWS; ++r) {
      if (r < rows) columns.Store(f, sum[r][v], c[r] + v * V::kWidth, lanes);
    }
  }
};

// Constants of one group, panel and block for all tiles.
struct TileArgs {
  const ProductRows* group;
  const DepthBlock* block;
  const float* b;     // row 0 of the panel's B
  const float* bias;  // bias of the panel, or null
  int64_t begin;      // first column of the panel
  int last;           // columns in the last register
  bool first;         // nothing is in C yet
  // Of sums that this block completes, or null; `column` of its arrays is the panel's first.
  const SumFinish* finish;
  int64_t column;
};

template <typename V, int ROWS, int VECTORS>
void RunProductTile(const TileArgs& t, int64_t row) {
  // Rows past the last one repeat it: the same values to the same place.
  const float* a[ROWS];
  float* c[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    const int64_t at = row + r < t.group->rows ? row + r : t.group->rows - 1;
    a[r] = t.group->a[at];
    c[r] = t.group->c[at] + t.begin;
  }
  ProductTile<V, ROWS, VECTORS> tile;
  tile.Start(c, t.last, t.first, t.bias);
  for (int s = 0; s < t.block->count; ++s) {
    const Segment& segment = t.block->segments[s];
    tile.Run(a, segment, t.b + segment.depth * VECTORS * V::kWidth);
  }
  if (t.finish == nullptr) {
    tile.Finish(c, t.last);
  } else {
    const int64_t rest = t.group->rows - row;
    tile.FinishSums(c, t.last, rest < ROWS ? static_cast<int>(rest) : ROWS, *t.finish, t.column);
  }
}

// Computes all rows of a group. The last ones, where they do not fill a tile, go in a smaller one.
template <typename V, int VECTORS>
void RunProductRows(const TileArgs& t) {
  constexpr int kRows = V::kProductRows[VECTORS];
  constexpr int kMost = kRows * 2 / 3, kFew = kRows / 3;
  int64_t row = 0;
  for (; row + kRows <= t.group->rows; row += kRows) RunProductTile<V, kRows, VECTORS>(t, row);
  const int64_t rest = t.group->rows - row;
  if (rest > kMost) {
    RunProductTile<V, kRows, VECTORS>(t, row);
  } else if (rest > kFew) {
    RunProductTile<V, kMost, VECTORS>(t, row);
  } else if (rest > 0) {
    RunProductTile<V, kFew, VECTORS>(t, row);
  }
}

// The part of a group's segments that meets rows [begin, end) of B.
static inline void CutSegments(const ProductRows& group, int64_t begin, int64_t end,
                               DepthBlock* block) {
  block->count = 0;
  for (int64_t i = 0; i < group.segment_count; ++i) {
    const Segment& s = group.segments[i];
    const int64_t low = s.depth > begin ? s.depth : begin;
    const int64_t high = s.depth + s.length < end ? s.depth + s.length : end;
    if (low >= high) continue;
    block->segments[block->count++] = {s.offset + low - s.depth, high - low, low};
  }
}

// Whether rows [begin, end) of B are the first that the group meets; of a group that meets none,
// the first rows of all.
static inline bool IsFirst(const ProductRows& group, int64_t begin, int64_t end) {
  if (group.segment_count == 0) return begin == 0;
  return group.segments[0].depth >= begin && group.segments[0].depth < end;
}

// Likewise the last.
static inline bool IsLast(const ProductRows& group, int64_t begin, int64_t end) {
  if (group.segment_count == 0) return begin == 0;
  const Segment& s = group.segments[group.segment_count - 1];
  return s.depth + s.length > begin && s.depth + s.length <= end;
}

template <typename V, int VECTORS>
void ProductPanel(const Product& p, const Panel& panel, int64_t begin, int64_t end) {
  DepthBlock block;
  TileArgs t;
  t.block = &block;
  t.b = p.b + panel.offset * p.depth;
  t.bias = p.bias == nullptr ? nullptr : p.bias + panel.begin;
  t.begin = panel.begin;
  t.last = panel.columns - (VECTORS - 1) * V::kWidth;
  t.column = p.finish_column + panel.begin;
  for (int64_t i = 0; i < p.group_count; ++i) {
    t.group = &p.groups[i];
    t.first = IsFirst(*t.group, begin, end);
    t.finish = p.finish != nullptr && IsLast(*t.group, begin, end) ? p.finish : nullptr;
    CutSegments(*t.group, begin, end, &block);
    if (block.count > 0 || t.first) RunProductRows<V, VECTORS>(t);
  }
}

template <typename V>
void RunProduct(const Product& p) {
  for (int64_t begin = 0; begin == 0 || begin < p.depth; begin += kDepthBlock) {
    const int64_t end = p.depth < begin + kDepthBlock ? p.depth : begin + kDepthBlock;
    for (int64_t i = 0; i < p.panel_count; ++i) {
      const Panel& panel = p.panels[i];
      switch (panel.vectors) {
        case 1:
          ProductPanel<V, 1>(p, panel, begin, end);
          break;
        case 2:
          if constexpr (V::kTileVectors >= 2) ProductPanel<V, 2>(p, panel, begin, end);
          break;
        case 3:
          if constexpr (V::kTileVectors >= 3) ProductPanel<V, 3>(p, panel, begin, end);
          break;
        default:
          if constexpr (V::kTileVectors >= 4) ProductPanel<V, 4>(p, panel, begin, end);
      }
    }
  }
}

}  // namespace runnel::fp32
