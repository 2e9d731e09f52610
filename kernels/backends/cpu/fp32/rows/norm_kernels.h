#pragma once

// Batch normalisation and column sums over rows of channels. Only for kernels_*.cc.

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/fp32/rows/channel_tiles.h"

namespace runnel::fp32 {

template <typename V, int N, bool PART>
void MomentsTile(const float* x, int64_t rows, int64_t stride, int lanes, float* mean,
                 float* squares) {
  Lanes<V, N, PART> sum, deviation, value;
  sum.Zero();
  deviation.Zero();
  for (int64_t r = 0; r < rows; ++r) {
    value.Load(x + r * stride, lanes);
    for (int i = 0; i < N; ++i) sum.v[i] = V::Add(sum.v[i], value.v[i]);
  }
  const typename V::Reg scale = V::Set1(1.0f / static_cast<float>(rows));
  for (int i = 0; i < N; ++i) sum.v[i] = V::Mul(sum.v[i], scale);
  for (int64_t r = 0; r < rows; ++r) {
    value.Load(x + r * stride, lanes);
    for (int i = 0; i < N; ++i) {
      const typename V::Reg d = V::Sub(value.v[i], sum.v[i]);
      deviation.v[i] = V::Fma(d, d, deviation.v[i]);
    }
  }
  sum.Store(mean, lanes);
  deviation.Store(squares, lanes);
}

template <typename V>
void Moments(const float* x, int64_t rows, int64_t channels, float* mean, float* squares) {
  ForChannels<V>(channels, [&]<int N, bool PART>(int64_t c, int lanes) {
    MomentsTile<V, N, PART>(x + c, rows, channels, lanes, mean + c, squares + c);
  });
}

template <typename V, int N, bool PART>
void SumsTile(const float* x, int64_t rows, int64_t stride, int lanes, float* sums) {
  Lanes<V, N, PART> sum, value;
  sum.Zero();
  for (int64_t r = 0; r < rows; ++r) {
    value.Load(x + r * stride, lanes);
    for (int i = 0; i < N; ++i) sum.v[i] = V::Add(sum.v[i], value.v[i]);
  }
  sum.Store(sums, lanes);
}

template <typename V>
void Sums(const float* x, int64_t rows, int64_t channels, float* sums) {
  ForChannels<V>(channels, [&]<int N, bool PART>(int64_t c, int lanes) {
    SumsTile<V, N, PART>(x + c, rows, channels, lanes, sums + c);
  });
}

template <typename V, Activation A>
[[gnu::always_inline]] inline typename V::Reg Activate(typename V::Reg y) {
  if constexpr (A != Activation::kNone) y = V::Max(V::Zero(), y);
  if constexpr (A == Activation::kRelu6) y = V::Min(V::Set1(6), y);
  return y;
}

// g, but 0 where the activation of y is flat.
template <typename V, Activation A>
[[gnu::always_inline]] inline typename V::Reg ThroughActivation(typename V::Reg g,
                                                                typename V::Reg y) {
  if constexpr (A == Activation::kRelu) return V::ClearNotAbove(g, y, V::Zero());
  if constexpr (A == Activation::kRelu6) return V::ClearOutside(g, y, V::Zero(), V::Set1(6));
  return g;
}

template <typename V, Activation A, int N, bool PART>
[[gnu::always_inline]] inline void NormaliseTile(const float* x, int lanes, const float* factor,
                                                 const float* offset, float* y) {
  Lanes<V, N, PART> value, f, o;
  value.Load(x, lanes);
  f.Load(factor, lanes);
  o.Load(offset, lanes);
  for (int i = 0; i < N; ++i) {
    value.v[i] = Activate<V, A>(V::Fma(value.v[i], f.v[i], o.v[i]));
  }
  value.Store(y, lanes);
}

template <typename V, Activation A>
void NormaliseRows(const float* x, int64_t rows, int64_t channels, const Normalisation& n,
                   float* y) {
  for (int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    ForChannels<V>(channels, [&]<int N, bool PART>(int64_t c, int lanes) {
      NormaliseTile<V, A, N, PART>(x + c, lanes, n.factor + c, n.offset + c, y + c);
    });
  }
}

template <typename V>
void Normalise(const float* x, int64_t rows, int64_t channels, const Normalisation& n, float* y) {
  switch (n.activation) {
    case Activation::kNone:
      return NormaliseRows<V, Activation::kNone>(x, rows, channels, n, y);
    case Activation::kRelu:
      return NormaliseRows<V, Activation::kRelu>(x, rows, channels, n, y);
    case Activation::kRelu6:
      return NormaliseRows<V, Activation::kRelu6>(x, rows, channels, n, y);
  }
}

template <typename V, Activation A, int N, bool PART>
void NormaliseSumsTile(const float* dy, const float* x, int64_t rows, int64_t stride, int lanes,
                       const Normalisation& n, int64_t c, float* sums, float* products) {
  Lanes<V, N, PART> sum, product, factor, offset, mean, g, value;
  sum.Zero();
  product.Zero();
  mean.Load(n.mean + c, lanes);
  if constexpr (A != Activation::kNone) {
    factor.Load(n.factor + c, lanes);
    offset.Load(n.offset + c, lanes);
  }
  for (int64_t r = 0; r < rows; ++r) {
    g.Load(dy + r * stride + c, lanes);
    value.Load(x + r * stride + c, lanes);
    for (int i = 0; i < N; ++i) {
      if constexpr (A != Activation::kNone) {
        g.v[i] = ThroughActivation<V, A>(g.v[i], V::Fma(value.v[i], factor.v[i], offset.v[i]));
      }
      sum.v[i] = V::Add(sum.v[i], g.v[i]);
      product.v[i] = V::Fma(g.v[i], V::Sub(value.v[i], mean.v[i]), product.v[i]);
    }
  }
  sum.Store(sums + c, lanes);
  product.Store(products + c, lanes);
}

template <typename V, Activation A>
void NormaliseSumsRows(const float* dy, const float* x, int64_t rows, int64_t channels,
                       const Normalisation& n, float* sums, float* products) {
  ForChannels<V>(channels, [&]<int N, bool PART>(int64_t c, int lanes) {
    NormaliseSumsTile<V, A, N, PART>(dy, x, rows, channels, lanes, n, c, sums, products);
  });
}

template <typename V>
void NormaliseSums(const float* dy, const float* x, int64_t rows, int64_t channels,
                   const Normalisation& n, float* sums, float* products) {
  switch (n.activation) {
    case Activation::kNone:
      return NormaliseSumsRows<V, Activation::kNone>(dy, x, rows, channels, n, sums, products);
    case Activation::kRelu:
      return NormaliseSumsRows<V, Activation::kRelu>(dy, x, rows, channels, n, sums, products);
    case Activation::kRelu6:
      return NormaliseSumsRows<V, Activation::kRelu6>(dy, x, rows, channels, n, sums, products);
  }
}

template <typename V, Activation A, int N, bool PART>
[[gnu::always_inline]] inline void NormaliseGradientTile(const float* dy, const float* x, int lanes,
                                                         const Normalisation& n, const float* a,
                                                         const float* b, int64_t c, float* dx) {
  Lanes<V, N, PART> g, value, factor, offset, slope, shift;
  g.Load(dy + c, lanes);
  value.Load(x + c, lanes);
  factor.Load(n.factor + c, lanes);
  if constexpr (A != Activation::kNone) offset.Load(n.offset + c, lanes);
  slope.Load(a + c, lanes);
  shift.Load(b + c, lanes);
  for (int i = 0; i < N; ++i) {
    if constexpr (A != Activation::kNone) {
      g.v[i] = ThroughActivation<V, A>(g.v[i], V::Fma(value.v[i], factor.v[i], offset.v[i]));
    }
    g.v[i] = V::Fma(g.v[i], factor.v[i], V::Fma(value.v[i], slope.v[i], shift.v[i]));
  }
  g.Store(dx + c, lanes);
}

template <typename V, Activation A>
void NormaliseGradientRows(const float* dy, const float* x, int64_t rows, int64_t channels,
                           const Normalisation& n, const float* a, const float* b, float* dx) {
  for (int64_t r = 0; r < rows; ++r, dy += channels, x += channels, dx += channels) {
    ForChannels<V>(channels, [&]<int N, bool PART>(int64_t c, int lanes) {
      NormaliseGradientTile<V, A, N, PART>(dy, x, lanes, n, a, b, c, dx);
    });
  }
}

template <typename V>
void NormaliseGradient(const float* dy, const float* x, int64_t rows, int64_t channels,
                       const Normalisation& n, const float* a, const float* b, float* dx) {
  switch (n.activation) {
    case Activation::kNone:
      return NormaliseGradientRows<V, Activation::kNone>(dy, x, rows, channels, n, a, b, dx);
    case Activation::kRelu:
      return NormaliseGradientRows<V, Activation::kRelu>(dy, x, rows, channels, n, a, b, dx);
    case Activation::kRelu6:
      return NormaliseGradientRows<V, Activation::kRelu6>(dy, x, rows, channels, n, a, b, dx);
  }
}

}  // namespace runnel::fp32
