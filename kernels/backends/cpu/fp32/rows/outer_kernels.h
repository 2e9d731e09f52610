#pragma once

// Sums of outer products over pixels: weight-gradients. Only for kernels_*.cc.

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/fp32/summation_rule.h"

namespace runnel::fp32 {

// Rows i of one tile: left values at left[p] + offset.
struct OuterTileArgs {
  const float* const* left;
  int64_t offset;
  const float* const* right;  // packed, VECTORS registers a pixel
  int64_t pixels;
  float* sums;
  int64_t stride;
  int last;    // columns in the last register
  int skip;    // rows that another tile has
  bool first;  // overwrite
};

template <typename V, int ROWS, int VECTORS>
void OuterTile(const OuterTileArgs& t) {
  typename V::Reg sum[ROWS][VECTORS];
#pragma GCC unroll 24
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) sum[r][v] = V::Zero();
  }
  for (int64_t p = 0; p < t.pixels; ++p) {
    const float* a = t.left[p] + t.offset;
    const float* b = t.right[p];
    typename V::Reg right[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) right[v] = V::Load(b + v * V::kWidth);
#pragma GCC unroll 24
    for (int r = 0; r < ROWS; ++r) {
      const typename V::Reg left = V::Set1(a[r]);
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) sum[r][v] = V::Fma(left, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 24
  for (int r = 0; r < ROWS; ++r) {
    if (r < t.skip) continue;
    float* to = t.sums + r * t.stride;
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) {
      float* p = to + v * V::kWidth;
      if (v + 1 < VECTORS) {
        V::Store(p, t.first ? sum[r][v] : V::Add(V::Load(p), sum[r][v]));
      } else {
        V::StorePart(p, t.first ? sum[r][v] : V::Add(V::LoadPart(p, t.last), sum[r][v]), t.last);
      }
    }
  }
}

// Rows [0, length) in tiles; the last one overlaps its neighbour where ROWS does not divide.
template <typename V, int ROWS, int VECTORS>
void OuterRows(OuterTileArgs t, int64_t length) {
  const int64_t offset = t.offset;
  float* const sums = t.sums;
  for (int64_t i = 0; i < length; i += ROWS) {
    const int64_t begin = i + ROWS <= length ? i : length - ROWS;
    t.skip = static_cast<int>(i - begin);
    t.offset = offset + begin;
    t.sums = sums + begin * t.stride;
    OuterTile<V, ROWS, VECTORS>(t);
  }
}

// Pixels of one block that a segment multiplies.
struct PixelList {
  const float* left[kPixelBlock];
  const float* right[kPixelBlock];
  int64_t count = 0;
};

// Lists the pixels that do not meet the padding in segment `s`.
static inline void ListPixels(const OuterProduct& o, int64_t s, int64_t begin, const PixelList& all,
                              PixelList* list) {
  int64_t count = 0;
  for (int64_t p = 0; p < all.count; ++p) {
    list->left[count] = all.left[p];
    list->right[count] = all.right[p];
    count += static_cast<int64_t>(~o.outside[begin + p] >> s & 1);
  }
  list->count = count;
}

template <typename V, int VECTORS>
void OuterPanel(const OuterProduct& o, const Panel& panel, int64_t begin, int64_t pixels,
                float* packed) {
  constexpr int kRows = V::kOuterRows[VECTORS];
  OuterTileArgs t;
  t.stride = o.stride;
  t.last = panel.columns - (VECTORS - 1) * V::kWidth;
  t.first = begin == 0 && !o.accumulate;
  PixelList all, inside;
  all.count = pixels;
  for (int64_t p = 0; p < pixels; ++p) {
    const float* from = o.right[begin + p] + panel.begin;
    float* to = packed + p * VECTORS * V::kWidth;
    all.left[p] = o.left[begin + p];
    all.right[p] = to;
#pragma GCC unroll 4
    for (int v = 0; v + 1 < VECTORS; ++v)
      V::Store(to + v * V::kWidth, V::Load(from + v * V::kWidth));
    V::Store(to + (VECTORS - 1) * V::kWidth, V::LoadPart(from + (VECTORS - 1) * V::kWidth, t.last));
  }
  const PixelList& list = o.outside == nullptr ? all : inside;
  t.left = list.left;
  t.right = list.right;
  int64_t row = 0;
  for (int64_t s = 0; s < o.segment_count; ++s) {
    if (o.outside != nullptr) ListPixels(o, s, begin, all, &inside);
    const int64_t length = o.segments[s].length;
    t.pixels = list.count;
    t.offset = o.segments[s].offset;
    t.sums = o.sums + row * o.stride + panel.begin;
    if (length >= kRows) {
      OuterRows<V, kRows, VECTORS>(t, length);
    } else if (length >= 4) {
      OuterRows<V, 4, VECTORS>(t, length);
    } else {
      OuterRows<V, 1, VECTORS>(t, length);
    }
    row += length;
  }
}

template <typename V>
void RunOuterProduct(const OuterProduct& o) {
  alignas(64) float packed[kPixelBlock * V::kTileVectors * V::kWidth];
  for (int64_t begin = 0; begin < o.pixels; begin += kPixelBlock) {
    const int64_t pixels = o.pixels - begin < kPixelBlock ? o.pixels - begin : kPixelBlock;
    for (int64_t i = 0; i < o.panel_count; ++i) {
      const Panel& panel = o.panels[i];
      switch (panel.vectors) {
        case 1:
          OuterPanel<V, 1>(o, panel, begin, pixels, packed);
          break;
        case 2:
          if constexpr (V::kTileVectors >= 2) OuterPanel<V, 2>(o, panel, begin, pixels, packed);
          break;
        case 3:
          if constexpr (V::kTileVectors >= 3) OuterPanel<V, 3>(o, panel, begin, pixels, packed);
          break;
        default:
          if constexpr (V::kTileVectors >= 4) OuterPanel<V, 4>(o, panel, begin, pixels, packed);
      }
    }
  }
}

}  // namespace runnel::fp32
