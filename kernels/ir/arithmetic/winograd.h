#pragma once

// Winograd's convolution F(2x2, 3x3) in integers (Lavin and Gray, arXiv 1509.09308, with 2G in
// place of G on both sides): weights of 4 bits and inputs of 6 give factors that fit int8, and
// four times the direct convolution, exactly.

#include <cstdint>

namespace runnel {

inline constexpr int kWinogradWeightMax = 7;         // INT4
inline constexpr int kWinogradInputMax = 31;         // INT6
inline constexpr int kWinogradPoints = 16;           // factors of a tile of 4 x 4
inline constexpr int64_t kWinogradChannels = 30543;  // no sum of so many overflows int32

// u = (2G) w (2G)^T of one filter of 3 x 3, both row-major: |w| <= 7 gives |u| <= 63.
inline void WinogradFilter(const int8_t* w, int64_t step, int8_t* u, int64_t out_step) {
  int t[4][3];
  for (int j = 0; j < 3; ++j) {
    const int a = w[j * step], b = w[(3 + j) * step], c = w[(6 + j) * step];
    t[0][j] = 2 * a;
    t[1][j] = a + b + c;
    t[2][j] = a - b + c;
    t[3][j] = 2 * c;
  }
  for (int i = 0; i < 4; ++i) {
    const int a = t[i][0], b = t[i][1], c = t[i][2];
    const int row[4] = {2 * a, a + b + c, a - b + c, 2 * c};
    for (int j = 0; j < 4; ++j) u[(4 * i + j) * out_step] = static_cast<int8_t>(row[j]);
  }
}

// v = B^T d B of `channels` tiles of 4 x 4; pixel (i, j) of them at d[4 i + j], point p to v + p *
// v_step. |d| <= 31 gives |v| <= 124.
inline void WinogradInput(const int8_t* const* d, int64_t channels, int8_t* v, int64_t v_step) {
  for (int64_t c = 0; c < channels; ++c) {
    int t[4][4];
    for (int j = 0; j < 4; ++j) {
      const int a = d[j][c], b = d[4 + j][c], e = d[8 + j][c], f = d[12 + j][c];
      t[0][j] = a - e;
      t[1][j] = b + e;
      t[2][j] = e - b;
      t[3][j] = b - f;
    }
    for (int i = 0; i < 4; ++i) {
      int8_t* row = v + 4 * i * v_step + c;
      row[0] = static_cast<int8_t>(t[i][0] - t[i][2]);
      row[v_step] = static_cast<int8_t>(t[i][1] + t[i][2]);
      row[2 * v_step] = static_cast<int8_t>(t[i][2] - t[i][1]);
      row[3 * v_step] = static_cast<int8_t>(t[i][1] - t[i][3]);
    }
  }
}

// y = A^T m A / 4 of one tile and channel: point p of m at p * m_step. The division leaves nothing.
inline void WinogradOutput(const int32_t* m, int64_t m_step, int32_t y[4]) {
  int32_t t[2][4];
  for (int j = 0; j < 4; ++j) {
    const int32_t a = m[j * m_step], b = m[(4 + j) * m_step], c = m[(8 + j) * m_step],
                  d = m[(12 + j) * m_step];
    t[0][j] = a + b + c;
    t[1][j] = b - c - d;
  }
  for (int i = 0; i < 2; ++i) {
    y[2 * i] = (t[i][0] + t[i][1] + t[i][2]) >> 2;
    y[2 * i + 1] = (t[i][1] - t[i][2] - t[i][3]) >> 2;
  }
}

}  // namespace runnel
