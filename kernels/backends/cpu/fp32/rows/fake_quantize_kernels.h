#pragma once

// Loops of fake quantisation that the compiler vectorises, once for each instruction set: V only
// names it. Only for kernels_*.cc.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/fp32/rows/elementwise_kernels.h"

namespace runnel::fp32 {

// The nearest integer, halves to even, of 0 <= x < 2^22: adding 1.5 * 2^23 leaves no fraction bits.
// NaN stays NaN.
template <typename V>
[[gnu::always_inline]] inline float NearestInteger(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

// tanh x = t(x / 4) doubled twice by tanh 2a = 2 tanh a / (1 + tanh^2 a), where t is the continued
// fraction x / (1 + x^2 / (3 + x^2 / (5 + ... / 13))), off by less than 1e-7 for |x| <= 2.5.
template <typename V>
[[gnu::always_inline]] inline float Tanh(float x) {
  const float low = x < -10 ? -10.0f : x;
  const float h = (low > 10 ? 10.0f : low) * 0.25f;
  const float s = h * h;
  const float numerator = h * (135135.0f + s * (17325.0f + s * (378.0f + s)));
  const float denominator = 135135.0f + s * (62370.0f + s * (3150.0f + s * 28.0f));
  float t = numerator / denominator;
  t = (t + t) / (1.0f + t * t);
  return (t + t) / (1.0f + t * t);
}

template <typename V>
uint32_t MaxMagnitude(const float* x, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

constexpr int kSumParts = 8;

template <typename V>
double MagnitudeSum(const float* x, int64_t count) {
  double sums[kSumParts] = {};
  const int64_t whole = count / kSumParts * kSumParts;
  for (int64_t i = 0; i < whole; i += kSumParts) {
    for (int p = 0; p < kSumParts; ++p)
      sums[p] += static_cast<double>(x[i + p] < 0 ? -x[i + p] : x[i + p]);
  }
  for (int64_t i = whole; i < count; ++i)
    sums[i - whole] += static_cast<double>(x[i] < 0 ? -x[i] : x[i]);
  double sum = 0;
  for (double part : sums) sum += part;
  return sum;
}

template <typename V>
void TanhGrid(const float* w, int64_t count, float half_inverse, int steps, float* v) {
  const float n = static_cast<float>(steps), unit = 1.0f / n;
  const float scale = n * half_inverse, middle = n * 0.5f;
  for (int64_t i = 0; i < count; ++i) {
    const float scaled = Tanh<V>(w[i]) * scale + middle;
    const float low = scaled < 0 ? 0.0f : scaled;
    const float code = NearestInteger<V>(low > n ? n : low);
    v[i] = (code + code - n) * unit;
  }
}

template <typename V>
double TanhProductSum(const float* dv, const float* w, int64_t count) {
  double sums[kSumParts] = {};
  const int64_t whole = count / kSumParts * kSumParts;
  for (int64_t i = 0; i < whole; i += kSumParts) {
    for (int p = 0; p < kSumParts; ++p)
      sums[p] += static_cast<double>(dv[i + p] * Tanh<V>(w[i + p]));
  }
  for (int64_t i = whole; i < count; ++i)
    sums[i - whole] += static_cast<double>(dv[i] * Tanh<V>(w[i]));
  double sum = 0;
  for (double part : sums) sum += part;
  return sum;
}

template <typename V>
void TanhGradient(const float* dv, const float* w, int64_t count, float inverse, bool add,
                  float* dw) {
  const float kept = add ? 1.0f : 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float t = Tanh<V>(w[i]);
    const float gradient = dv[i] * inverse * (1.0f - t * t);
    dw[i] = gradient + (kept != 0 ? dw[i] : 0.0f);
  }
}

template <typename V>
void UnitGrid(const float* x, int64_t count, int steps, float* y) {
  const float n = static_cast<float>(steps), unit = 1.0f / n;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float scaled = x[i] * n;
    const float low = scaled < 0 ? 0.0f : scaled;
    y[i] = NearestInteger<V>(low > n ? n : low) * unit;
  }
}

template <typename V>
void UnitGradient(const float* dy, const float* x, int64_t count, float* dx) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = dy[i];
    dx[i] = (x[i] < 0) | (x[i] > 1) ? 0.0f : g;
  }
}

template <typename V>
void DrawWords(const uint32_t key[2], const uint32_t sequence[2], uint64_t block, int64_t count,
               uint32_t* draws) {
  constexpr int kWords = 64;
  for (int64_t i = 0; i < count; i += kWords, block += kWords / 4) {
    uint32_t words[kWords];
    if constexpr (requires { V::PhiloxWords(key, sequence, block, words); }) {
      V::PhiloxWords(key, sequence, block, words);
    } else {
      PhiloxWords(key, sequence, block, words);
    }
    for (int w = 0; w < kWords; ++w) draws[i + w] = words[w] >> 12;
  }
}

template <typename V>
void ErrorGridLoop(const float* dy, const uint32_t* draws, int64_t count, const ErrorGrid& grid,
                   float* y) {
  const float scale = grid.scale, step = grid.step;
  const int32_t steps = grid.steps, middle = grid.steps << 19;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const auto point = static_cast<int32_t>(dy[i] * scale);
    const int32_t code = (point + middle + static_cast<int32_t>(draws[i])) >> 20;
    const int32_t low = code < 0 ? 0 : code;
    const int32_t clipped = low > steps ? steps : low;
    y[i] = static_cast<float>(2 * clipped - steps) * step;
  }
}

}  // namespace runnel::fp32
