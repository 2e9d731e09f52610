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

Moments MomentsOf(const Channel& channel, const float* x) {
  double sum = 0;
  for (int64_t r = 0; r < channel.count; ++r) {
    for (int64_t i = 0; i < channel.inner; ++i) sum += x[r * channel.step + i];
  }
  Moments moments;
  moments.mean = sum / channel.elements();
  double squares = 0;
  for (int64_t r = 0; r < channel.count; ++r) {
    for (int64_t i = 0; i < channel.inner; ++i) {
      const double from_mean = x[r * channel.step + i] - moments.mean;
      squares += from_mean * from_mean;
    }
  }
  moments.variance = squares / channel.elements();
  moments.unbiased = channel.elements() > 1 ? squares / (channel.elements() - 1) : moments.variance;
  return moments;
}

double InverseDeviation(double variance, double epsilon) {
  return 1 / __builtin_sqrt(variance + epsilon);
}

void Normalize(const Channel& channel, const float* x, double mean, double inverse, double scale,
               double shift, float* y) {
  for (int64_t r = 0; r < channel.count; ++r) {
    for (int64_t i = 0; i < channel.inner; ++i) {
      const int64_t at = r * channel.step + i;
      y[at] = static_cast<float>((x[at] - mean) * inverse * scale + shift);
    }
  }
}

NormGradient NormalizeGradient(const Channel& channel, const float* dy, const float* x, double mean,
                               double inverse, double scale, float* dx) {
  NormGradient sums;
  for (int64_t r = 0; r < channel.count; ++r) {
    for (int64_t i = 0; i < channel.inner; ++i) {
      const int64_t at = r * channel.step + i;
      sums.shift += dy[at];
      sums.scale += dy[at] * ((x[at] - mean) * inverse);
    }
  }
  const double factor = scale * inverse, n = channel.elements();
  for (int64_t r = 0; r < channel.count; ++r) {
    for (int64_t i = 0; i < channel.inner; ++i) {
      const int64_t at = r * channel.step + i;
      const double u = (x[at] - mean) * inverse;
      dx[at] = static_cast<float>(factor * (dy[at] - sums.shift / n - u * (sums.scale / n)));
    }
  }
  return sums;
}

}  // namespace runnel::small
