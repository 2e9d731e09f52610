// Pools and batch norm (depthwise.h).

#include "kernels/backends/small/primitives/depthwise.h"

namespace runnel::small {
namespace {

// Calls body(tap, place in the input) for the elements of the window of output (h, w) that are not
// padding.
template <class Body>
void ForWindow(const Conv& c, int32_t h, int32_t w, const Body& body) {
  for (int32_t i = 0; i < c.kh; ++i) {
    const int32_t y = Sliding::Source(h, c.stride_h, i, c.pad_h, 1, c.in.h);
    if (y < 0) continue;
    for (int32_t j = 0; j < c.kw; ++j) {
      const int32_t x = Sliding::Source(w, c.stride_w, j, c.pad_w, 1, c.in.w);
      if (x >= 0) body(i * c.kw + j, y * c.in.w + x);
    }
  }
}

void Store(const double* sums, double divisor, int32_t count, float* to) {
  for (int32_t i = 0; i < count; ++i) to[i] = static_cast<float>(sums[i] / divisor);
}

}  // namespace

void MaxPool(const Pool& pool, const float* x, float* y, uint8_t* taps) {
  const Conv& c = pool.window;
  for (int32_t h = 0; h < c.out.h; ++h) {
    for (int32_t w = 0; w < c.out.w; ++w) {
      int32_t best = -1, best_tap = 0;
      ForWindow(c, h, w, [&](int32_t tap, int32_t at) {
        const bool is_first = best < 0;
        if (!is_first && x[best] != x[best]) return;
        if (!is_first && !(x[at] > x[best]) && x[at] == x[at]) return;
        best = at;
        best_tap = tap;
      });
      *y++ = x[best];
      if (taps != nullptr) *taps++ = static_cast<uint8_t>(best_tap);
    }
  }
}

void MaxPoolGradient(const Pool& pool, const float* dy, const uint8_t* taps, double* sums,
                     float* dx) {
  const Conv& c = pool.window;
  for (int32_t i = 0; i < c.in.positions(); ++i) sums[i] = 0;
  for (int32_t h = 0; h < c.out.h; ++h) {
    for (int32_t w = 0; w < c.out.w; ++w, ++dy, ++taps) {
      const int32_t y = h * c.stride_h + *taps / c.kw - c.pad_h;
      const int32_t x = w * c.stride_w + *taps % c.kw - c.pad_w;
      sums[y * c.in.w + x] += *dy;
    }
  }
  Store(sums, 1, c.in.positions(), dx);
}

void AveragePool(const Pool& pool, const float* x, float* y) {
  const Conv& c = pool.window;
  for (int32_t h = 0; h < c.out.h; ++h) {
    for (int32_t w = 0; w < c.out.w; ++w) {
      double sum = 0;
      ForWindow(c, h, w, [&](int32_t, int32_t at) { sum += x[at]; });
      *y++ = static_cast<float>(sum / c.taps());
    }
  }
}

void AveragePoolGradient(const Pool& pool, const float* dy, double* sums, float* dx) {
  const Conv& c = pool.window;
  for (int32_t i = 0; i < c.in.positions(); ++i) sums[i] = 0;
  for (int32_t h = 0; h < c.out.h; ++h) {
    for (int32_t w = 0; w < c.out.w; ++w, ++dy)
      ForWindow(c, h, w, [&](int32_t, int32_t at) { sums[at] += *dy; });
  }
  Store(sums, c.taps(), c.in.positions(), dx);
}

void AddSum(const float* x, int64_t count, double& sum) {
  for (int64_t i = 0; i < count; ++i) sum += x[i];
}

void AddSquares(const float* x, int64_t count, double mean, double& squares) {
  for (int64_t i = 0; i < count; ++i) {
    const double from_mean = x[i] - mean;
    squares += from_mean * from_mean;
  }
}

Moments MomentsOf(double elements, double sum, double squares) {
  return {sum / elements, squares / elements,
          elements > 1 ? squares / (elements - 1) : squares / elements};
}

double InverseDeviation(double variance, double epsilon) {
  return 1 / __builtin_sqrt(variance + epsilon);
}

void Normalize(const Norm& norm, const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i)
    y[i] = static_cast<float>((x[i] - norm.mean) * norm.inverse * norm.scale + norm.shift);
}

void AddNormGradient(const Norm& norm, const float* dy, const float* x, int64_t count,
                     NormGradient& sums) {
  for (int64_t i = 0; i < count; ++i) {
    sums.shift += dy[i];
    sums.scale += dy[i] * ((x[i] - norm.mean) * norm.inverse);
  }
}

void NormalizeGradient(const Norm& norm, const NormGradient& sums, double elements, const float* dy,
                       const float* x, int64_t count, float* dx) {
  const double factor = norm.scale * norm.inverse;
  for (int64_t i = 0; i < count; ++i) {
    const double u = (x[i] - norm.mean) * norm.inverse;
    dx[i] =
        static_cast<float>(factor * (dy[i] - sums.shift / elements - u * (sums.scale / elements)));
  }
}

}  // namespace runnel::small
