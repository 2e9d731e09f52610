#pragma once

// Depthwise convolution over padded rows. Only for kernels_*.cc.

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/fp32/rows/channel_tiles.h"
#include "kernels/backends/cpu/fp32/rows/finish_columns.h"

namespace runnel::fp32 {

// COLUMNS neighbouring outputs of a 3x3 kernel, one register of channels: an input column that
// several of them read is loaded once.
template <typename V, int STRIDE, int COLUMNS, bool PART>
[[gnu::always_inline]] inline void DepthwiseColumns(const DepthwiseRow& d,
                                                    const typename V::Reg (&weight)[9],
                                                    typename V::Reg start, int64_t column,
                                                    int64_t c, int lanes,
                                                    const FinishColumns<V, PART>* finish) {
  typename V::Reg sum[COLUMNS];
  for (int o = 0; o < COLUMNS; ++o) sum[o] = start;
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    const float* x = d.rows[i] + column * STRIDE * d.channels + c;
#pragma GCC unroll 9
    for (int k = 0; k < (COLUMNS - 1) * STRIDE + 3; ++k) {
      const typename V::Reg value = LoadLanes<V, PART>(x + k * d.channels, lanes);
#pragma GCC unroll 4
      for (int o = 0; o < COLUMNS; ++o) {
        const int j = k - o * STRIDE;
        if (j >= 0 && j < 3) sum[o] = V::Fma(value, weight[3 * i + j], sum[o]);
      }
    }
  }
  float* const y = d.y + column * d.y_step + c;
  if (finish == nullptr) {
    for (int o = 0; o < COLUMNS; ++o) StoreLanes<V, PART>(y + o * d.y_step, sum[o], lanes);
  } else {
    for (int o = 0; o < COLUMNS; ++o) finish->Store(*d.finish, sum[o], y + o * d.y_step, lanes);
  }
}

template <typename V, int STRIDE, bool PART>
void Depthwise3x3(const DepthwiseRow& d, int64_t c, int lanes,
                  const FinishColumns<V, PART>* finish) {
  typename V::Reg weight[9];
  for (int t = 0; t < 9; ++t) weight[t] = LoadLanes<V, PART>(d.weight + t * d.channels + c, lanes);
  const typename V::Reg start =
      d.bias == nullptr ? V::Zero() : LoadLanes<V, PART>(d.bias + c, lanes);
  int64_t o = 0;
  for (; o + 4 <= d.columns; o += 4) {
    DepthwiseColumns<V, STRIDE, 4, PART>(d, weight, start, o, c, lanes, finish);
  }
  for (; o < d.columns; ++o) {
    DepthwiseColumns<V, STRIDE, 1, PART>(d, weight, start, o, c, lanes, finish);
  }
}

template <typename V, bool PART>
void DepthwiseAny(const DepthwiseRow& d, int64_t c, int lanes,
                  const FinishColumns<V, PART>* finish) {
  for (int64_t o = 0; o < d.columns; ++o) {
    typename V::Reg sum = d.bias == nullptr ? V::Zero() : LoadLanes<V, PART>(d.bias + c, lanes);
    for (int64_t i = 0; i < d.taps_h; ++i) {
      const float* x = d.rows[i] + o * d.stride * d.channels + c;
      const float* w = d.weight + i * d.taps_w * d.channels + c;
      for (int64_t j = 0; j < d.taps_w; ++j) {
        sum = V::Fma(LoadLanes<V, PART>(x + j * d.gap * d.channels, lanes),
                     LoadLanes<V, PART>(w + j * d.channels, lanes), sum);
      }
    }
    float* const y = d.y + o * d.y_step + c;
    finish == nullptr ? StoreLanes<V, PART>(y, sum, lanes)
                      : finish->Store(*d.finish, sum, y, lanes);
  }
}

template <typename V, bool PART>
void DepthwiseBy(const DepthwiseRow& d, int64_t c, int lanes,
                 const FinishColumns<V, PART>* finish) {
  const bool square3 = d.taps_h == 3 && d.taps_w == 3 && d.gap == 1;
  if (square3 && d.stride == 1) {
    Depthwise3x3<V, 1, PART>(d, c, lanes, finish);
  } else if (square3 && d.stride == 2) {
    Depthwise3x3<V, 2, PART>(d, c, lanes, finish);
  } else {
    DepthwiseAny<V, PART>(d, c, lanes, finish);
  }
}

template <typename V, bool PART>
void DepthwiseTile(const DepthwiseRow& d, int64_t c, int lanes) {
  if (d.finish == nullptr) return DepthwiseBy<V, PART>(d, c, lanes, nullptr);
  const FinishColumns<V, PART> finish(*d.finish, c, lanes);
  DepthwiseBy<V, PART>(d, c, lanes, &finish);
}

template <typename V>
void RunDepthwiseRow(const DepthwiseRow& d) {
  int64_t c = 0;
  for (; c + V::kWidth <= d.channels; c += V::kWidth) DepthwiseTile<V, false>(d, c, V::kWidth);
  if (c < d.channels) DepthwiseTile<V, true>(d, c, static_cast<int>(d.channels - c));
}

template <typename V, bool PART>
void DepthwiseOuter3x3(const DepthwiseOuter& d, int64_t c, int lanes) {
  typename V::Reg sum[9];
  for (int t = 0; t < 9; ++t) sum[t] = LoadLanes<V, PART>(d.sums + t * d.channels + c, lanes);
  for (int64_t r = 0; r < d.rows; ++r) {
    const float* dy = d.dy + r * d.columns * d.channels + c;
    const float* x0 = d.x + r * d.stride_h * d.x_row + c;
    const float* x1 = x0 + d.x_row;
    const float* x2 = x1 + d.x_row;
    for (int64_t o = 0; o < d.columns; ++o) {
      const typename V::Reg g = LoadLanes<V, PART>(dy, lanes);
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) {
        sum[j] = V::Fma(g, LoadLanes<V, PART>(x0 + j * d.channels, lanes), sum[j]);
        sum[3 + j] = V::Fma(g, LoadLanes<V, PART>(x1 + j * d.channels, lanes), sum[3 + j]);
        sum[6 + j] = V::Fma(g, LoadLanes<V, PART>(x2 + j * d.channels, lanes), sum[6 + j]);
      }
      dy += d.channels;
      x0 += d.stride_w * d.channels;
      x1 += d.stride_w * d.channels;
      x2 += d.stride_w * d.channels;
    }
  }
  for (int t = 0; t < 9; ++t) StoreLanes<V, PART>(d.sums + t * d.channels + c, sum[t], lanes);
}

template <typename V, bool PART>
void DepthwiseOuterAny(const DepthwiseOuter& d, int64_t c, int lanes) {
  for (int64_t t = 0; t < d.taps_h * d.taps_w; ++t) {
    const int64_t i = t / d.taps_w, j = t % d.taps_w;
    typename V::Reg sum = LoadLanes<V, PART>(d.sums + t * d.channels + c, lanes);
    for (int64_t r = 0; r < d.rows; ++r) {
      const float* dy = d.dy + r * d.columns * d.channels + c;
      const float* x =
          d.x + (r * d.stride_h + i * d.gap_h) * d.x_row + j * d.gap_w * d.channels + c;
      for (int64_t o = 0; o < d.columns; ++o) {
        sum = V::Fma(LoadLanes<V, PART>(dy + o * d.channels, lanes),
                     LoadLanes<V, PART>(x + o * d.stride_w * d.channels, lanes), sum);
      }
    }
    StoreLanes<V, PART>(d.sums + t * d.channels + c, sum, lanes);
  }
}

template <typename V, bool PART>
void DepthwiseOuterTile(const DepthwiseOuter& d, int64_t c, int lanes) {
  if (d.taps_h == 3 && d.taps_w == 3 && d.gap_h == 1 && d.gap_w == 1) {
    DepthwiseOuter3x3<V, PART>(d, c, lanes);
  } else {
    DepthwiseOuterAny<V, PART>(d, c, lanes);
  }
}

template <typename V>
void RunDepthwiseOuter(const DepthwiseOuter& d) {
  int64_t c = d.channel_begin;
  for (; c + V::kWidth <= d.channel_end; c += V::kWidth) {
    DepthwiseOuterTile<V, false>(d, c, V::kWidth);
  }
  if (c < d.channel_end) DepthwiseOuterTile<V, true>(d, c, static_cast<int>(d.channel_end - c));
}

}  // namespace runnel::fp32
