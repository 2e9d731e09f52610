#pragma once

// Transforms of F(2x2, 3x3) in floats. Only for kernels_*.cc.

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/fp32/rows/channel_tiles.h"
#include "kernels/backends/cpu/fp32/rows/finish_columns.h"

namespace runnel::fp32 {

template <typename V, bool PART>
void WinogradInputTile(const float* const* d, int64_t c, int lanes, float* v, int64_t v_step) {
  typename V::Reg t[4][4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const typename V::Reg a = LoadLanes<V, PART>(d[j] + c, lanes);
    const typename V::Reg b = LoadLanes<V, PART>(d[4 + j] + c, lanes);
    const typename V::Reg e = LoadLanes<V, PART>(d[8 + j] + c, lanes);
    const typename V::Reg f = LoadLanes<V, PART>(d[12 + j] + c, lanes);
    t[0][j] = V::Sub(a, e);
    t[1][j] = V::Add(b, e);
    t[2][j] = V::Sub(e, b);
    t[3][j] = V::Sub(b, f);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    float* row = v + 4 * i * v_step + c;
    StoreLanes<V, PART>(row, V::Sub(t[i][0], t[i][2]), lanes);
    StoreLanes<V, PART>(row + v_step, V::Add(t[i][1], t[i][2]), lanes);
    StoreLanes<V, PART>(row + 2 * v_step, V::Sub(t[i][2], t[i][1]), lanes);
    StoreLanes<V, PART>(row + 3 * v_step, V::Sub(t[i][1], t[i][3]), lanes);
  }
}

template <typename V>
void WinogradInput(const float* const* d, int64_t channels, float* v, int64_t v_step) {
  int64_t c = 0;
  for (; c + V::kWidth <= channels; c += V::kWidth)
    WinogradInputTile<V, false>(d, c, V::kWidth, v, v_step);
  if (c < channels) WinogradInputTile<V, true>(d, c, static_cast<int>(channels - c), v, v_step);
}

template <typename V, bool PART>
void WinogradOutputTile(const WinogradTile& w, int64_t c, int lanes) {
  typename V::Reg t[2][4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const float* m = w.m + j * w.m_step + c;
    const typename V::Reg b = LoadLanes<V, PART>(m + 4 * w.m_step, lanes);
    const typename V::Reg e = LoadLanes<V, PART>(m + 8 * w.m_step, lanes);
    t[0][j] = V::Add(V::Add(LoadLanes<V, PART>(m, lanes), b), e);
    t[1][j] = V::Sub(V::Sub(b, e), LoadLanes<V, PART>(m + 12 * w.m_step, lanes));
  }
  const typename V::Reg bias =
      w.bias == nullptr ? V::Zero() : LoadLanes<V, PART>(w.bias + c, lanes);
  typename V::Reg y[4];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    y[2 * i] = V::Add(V::Add(V::Add(t[i][0], t[i][1]), t[i][2]), bias);
    y[2 * i + 1] = V::Add(V::Sub(V::Sub(t[i][1], t[i][2]), t[i][3]), bias);
  }
  if (w.finish == nullptr) {
    for (int k = 0; k < 4; ++k) {
      if (w.y[k] != nullptr) StoreLanes<V, PART>(w.y[k] + c, y[k], lanes);
    }
    return;
  }
  const FinishColumns<V, PART> columns(*w.finish, w.finish_column + c, lanes);
  for (int k = 0; k < 4; ++k) {
    if (w.y[k] != nullptr) columns.Store(*w.finish, y[k], w.y[k] + c, lanes);
  }
}

template <typename V>
void WinogradOutput(const WinogradTile& w) {
  int64_t c = 0;
  for (; c + V::kWidth <= w.columns; c += V::kWidth) WinogradOutputTile<V, false>(w, c, V::kWidth);
  if (c < w.columns) WinogradOutputTile<V, true>(w, c, static_cast<int>(w.columns - c));
}

}  // namespace runnel::fp32
