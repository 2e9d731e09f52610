#pragma once

// Layer norm, GELU and attention's softmax in single precision: what backend cpu computes of FP32,
// and every backend of halves, which round the results. No multiply-add is fused and sums have
// sixteen parts, so all instruction sets give the same bytes. `V` only names an instruction set:
// files that are compiled for one include this.

#include <bit>
#include <cstdint>

namespace runnel::transformer {

// Rows of a layer norm whose dscale and dshift are summed up in single precision; the pieces' sums
// in double.
inline constexpr int64_t kPieceRows = 64;

// Rows that a layer norm takes.
struct LayerNormRows {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  const float* scale = nullptr;
  const float* shift = nullptr;  // of the forward
  float epsilon = 0;
};

// e^x, off by at most 2 units in the last place; beyond -87 and 87 it is that of the bound. The power
// of two is split off, the rest is Taylor's polynomial.
template <typename V>
[[gnu::always_inline]] inline float Exp(float x) {
  const float above = x < -87 ? -87.0f : x, low = above > 87 ? 87.0f : above;
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = low * 1.44269504f + kShift;
  const float n = shifted - kShift;
  const float r = (low - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t bits = (std::bit_cast<uint32_t>(shifted) << 23) + (127u << 23);
  return p * std::bit_cast<float>(bits);
}

// Sums in sixteen parts, so that they are vectors and the same on every count of threads.
constexpr int kRowParts = 16;

[[gnu::always_inline]] static inline float SumOfParts(const float* parts) {
  float sum = 0;
  for (int p = 0; p < kRowParts; ++p) sum += parts[p];
  return sum;
}

template <typename V, typename F>
[[gnu::always_inline]] inline float SumOver(int64_t count, const F& value) {
  float parts[kRowParts] = {};
  const int64_t whole = count / kRowParts * kRowParts;
  for (int64_t i = 0; i < whole; i += kRowParts) {
    for (int p = 0; p < kRowParts; ++p) parts[p] += value(i + p);
  }
  for (int64_t i = whole; i < count; ++i) parts[i - whole] += value(i);
  return SumOfParts(parts);
}

// shares[i] = e^(scale * scores[i] - log_sum); shares may be scores.
template <typename V>
void SharesOf(const float* scores, int64_t count, float scale, float log_sum, float* shares) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    shares[i] = Exp<V>(scores[i] * scale - log_sum);
  }
}

// The largest score times `scale`, and the sum of what e^(scale * score - that) is.
template <typename V>
float ScoreMaximum(const float* scores, int64_t count, float scale, float* sum) {
  float largest = scores[0];
  for (int64_t i = 1; i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
  largest *= scale;
  *sum = SumOver<V>(count, [&](int64_t i) { return Exp<V>(scores[i] * scale - largest); });
  return largest;
}

// dscores[i] = scale * shares[i] * (dshares[i] - mean); it may be dshares.
template <typename V>
void ScoreGradient(const float* shares, const float* dshares, int64_t count, float scale,
                   float mean, float* dscores) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) dscores[i] = scale * shares[i] * (dshares[i] - mean);
}

template <typename V>
[[gnu::always_inline]] inline float SigmoidOf(float x) {
  return 1.0f / (1.0f + Exp<V>(-x));
}

template <typename V>
void Sigmoid(const float* x, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = SigmoidOf<V>(x[i]);
}

// x / 2 * (1 + tanh u) = x / (1 + e^(-2u)): one division in place of tanh's three.
constexpr float kGeluSlope = 0.797884561f;  // sqrt(2 / pi)
constexpr float kGeluCube = 0.044715f;

template <typename V>
[[gnu::always_inline]] inline float GeluShare(float x) {
  return 1.0f / (1.0f + Exp<V>(-2.0f * kGeluSlope * (x + kGeluCube * x * x * x)));
}

template <typename V>
void Gelu(const float* x, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * GeluShare<V>(x[i]);
}

template <typename V>
void GeluGradient(const float* dy, const float* x, int64_t count, float* dx) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float v = x[i], share = GeluShare<V>(v);
    const float slope = 2.0f * kGeluSlope * (1.0f + 3.0f * kGeluCube * v * v);
    dx[i] = dy[i] * (share + v * share * (1.0f - share) * slope);
  }
}

// The GELU by erf is x times the normal distribution's share below x. For |x| up to kFar that share
// is density * polynomial of 1 / (1 + 0.2316419 |x|), off by at most 7.5e-8 (Abramowitz and Stegun,
// 26.2.17).
struct NormalShare {
  float below, density;
};

template <typename V>
[[gnu::always_inline]] inline NormalShare NormalShareOf(float x) {
  constexpr float kFar = 13;  // beyond it the share is 0 or 1, and the density times x is 0
  const float size = x < 0 ? -x : x, a = size > kFar ? kFar : size;
  const float t = 1.0f / (1.0f + 0.2316419f * a);
  float p = 1.330274429f;
  p = p * t - 1.821255978f;
  p = p * t + 1.781477937f;
  p = p * t - 0.356563782f;
  p = p * t + 0.319381530f;
  const float density = 0.398942280f * Exp<V>(-0.5f * a * a);  // 1 / sqrt(2 pi)
  const float beyond = density * (p * t);
  return {x < 0 ? beyond : 1.0f - beyond, x < -kFar || x > kFar ? 0.0f : density};
}

template <typename V>
void ExactGelu(const float* x, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * NormalShareOf<V>(x[i]).below;
}

template <typename V>
void ExactGeluGradient(const float* dy, const float* x, int64_t count, float* dx) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const NormalShare share = NormalShareOf<V>(x[i]);
    dx[i] = dy[i] * (share.below + x[i] * share.density);
  }
}

template <typename V>
void LayerNorm(const LayerNormRows& n, float* y, float* mean, float* inverse) {
  const float count = static_cast<float>(n.width);
  for (int64_t row = 0; row < n.rows; ++row, y += n.width) {
    const float* const x = n.x + row * n.width;
    const float m = SumOver<V>(n.width, [&](int64_t i) { return x[i]; }) / count;
    const float squares = SumOver<V>(n.width, [&](int64_t i) { return (x[i] - m) * (x[i] - m); });
    const float s = 1.0f / __builtin_sqrtf(squares / count + n.epsilon);
#pragma GCC ivdep
    for (int64_t i = 0; i < n.width; ++i) y[i] = (x[i] - m) * s * n.scale[i] + n.shift[i];
    if (mean == nullptr) continue;
    mean[row] = m;
    inverse[row] = s;
  }
}

// Adds to dscale and dshift.
template <typename V>
void LayerNormGradient(const LayerNormRows& n, const float* dy, const float* mean,
                       const float* inverse, float* dx, float* dscale, float* dshift) {
  const float count = static_cast<float>(n.width);
  for (int64_t row = 0; row < n.rows; ++row, dy += n.width, dx += n.width) {
    const float* const x = n.x + row * n.width;
    const float m = mean[row], s = inverse[row];
    const float sum = SumOver<V>(n.width, [&](int64_t i) { return dy[i] * n.scale[i]; }) / count;
    const float product =
        SumOver<V>(n.width, [&](int64_t i) { return dy[i] * n.scale[i] * ((x[i] - m) * s); }) /
        count;
#pragma GCC ivdep
    for (int64_t i = 0; i < n.width; ++i) {
      const float normal = (x[i] - m) * s, g = dy[i];
      dscale[i] += g * normal;
      dshift[i] += g;
      dx[i] = s * (g * n.scale[i] - sum - normal * product);
    }
  }
}

}  // namespace runnel::transformer
