// Depthwise convolution, channels-last. LibTorch's own is memory-bound as well in the forward
// direction, but its weight-gradient takes 10 to 100 times as long on small planes.

#include <algorithm>
#include <vector>

#include "kernels/torch/kernel.h"
#include "kernels/torch/simd.h"

namespace runnel::torch_kernels {
namespace {

struct Depthwise {
  Image x, y;
  Window window;
  int64_t channels = 0;

  int64_t taps() const { return window.kh * window.kw; }
};

Depthwise DepthwiseOf(const Call& call, const Shape& x, const Shape& y) {
  Depthwise d;
  d.x = ImageOf(x);
  d.y = ImageOf(y);
  d.window = WindowOf(call.instruction->attributes, x);
  d.channels = d.x.c;
  return d;
}

// (C, taps) to (taps, C), so that a tap's weights of neighbouring channels are neighbours.
float* TransposedWeights(const Depthwise& d, const float* weight, Arena* arena) {
  float* w = reinterpret_cast<float*>(arena->Get(d.taps() * d.channels * sizeof(float)));
  for (int64_t c = 0; c < d.channels; ++c) {
    for (int64_t t = 0; t < d.taps(); ++t) w[t * d.channels + c] = weight[c * d.taps() + t];
  }
  return w;
}

// The inputs that one output position reads, with their weights.
struct Taps {
  std::vector<const float*> source;
  std::vector<const float*> weight;
  int count = 0;

  explicit Taps(int64_t capacity) : source(capacity), weight(capacity) {}
  void Add(const float* s, const float* w) {
    source[count] = s;
    weight[count++] = w;
  }
};

RUNNEL_TORCH_INLINE inline void Gather(const Taps& taps, int64_t channels, float* y) {
  const float* const* source = taps.source.data();
  const float* const* weight = taps.weight.data();
  const int count = taps.count;
  ForTiles(0, channels, [&]<typename T>(int64_t c) RUNNEL_TORCH_INLINE {
    T sum;
    sum.Zero();
    for (int t = 0; t < count; ++t) {
      T s, w;
      s.Load(source[t] + c);
      w.Load(weight[t] + c);
      for (size_t k = 0; k < std::size(sum.v); ++k) sum.v[k] += s.v[k] * w.v[k];
    }
    sum.Store(y + c);
  });
}

RUNNEL_TORCH_SIMD void ForwardSample(const Depthwise& d, const float* x, const float* w, float* y,
                                     Taps* taps) {
  const Window& win = d.window;
  const int64_t channels = d.channels;
  for (int64_t oh = 0; oh < d.y.h; ++oh) {
    for (int64_t ow = 0; ow < d.y.w; ++ow) {
      taps->count = 0;
      for (int64_t kh = 0; kh < win.kh; ++kh) {
        const int64_t h = oh * win.sh - win.ph + kh;
        if (h < 0 || h >= d.x.h) continue;
        for (int64_t kw = 0; kw < win.kw; ++kw) {
          const int64_t v = ow * win.sw - win.pw + kw;
          if (v < 0 || v >= d.x.w) continue;
          taps->Add(x + (h * d.x.w + v) * channels, w + (kh * win.kw + kw) * channels);
        }
      }
      Gather(*taps, channels, y + (oh * d.y.w + ow) * channels);
    }
  }
}

RUNNEL_TORCH_SIMD void InputGradientSample(const Depthwise& d, const float* dy, const float* w,
                                           float* dx, Taps* taps) {
  const Window& win = d.window;
  const int64_t channels = d.channels;
  for (int64_t h = 0; h < d.x.h; ++h) {
    for (int64_t v = 0; v < d.x.w; ++v) {
      taps->count = 0;
      for (int64_t kh = 0; kh < win.kh; ++kh) {
        const int64_t top = h + win.ph - kh;
        if (top < 0 || top % win.sh != 0 || top / win.sh >= d.y.h) continue;
        for (int64_t kw = 0; kw < win.kw; ++kw) {
          const int64_t left = v + win.pw - kw;
          if (left < 0 || left % win.sw != 0 || left / win.sw >= d.y.w) continue;
          taps->Add(dy + (top / win.sh * d.y.w + left / win.sw) * channels,
                    w + (kh * win.kw + kw) * channels);
        }
      }
      Gather(*taps, channels, dx + (h * d.x.w + v) * channels);
    }
  }
}

// First and past-the-last output position whose tap k lies inside an input of `size`.
void ValidRange(int64_t size, int64_t outputs, int64_t k, int64_t stride, int64_t padding,
                int64_t* begin, int64_t* end) {
  const int64_t shift = padding - k;  // input position = output position * stride - shift
  *begin = shift > 0 ? (shift + stride - 1) / stride : 0;
  *end = size + shift > 0 ? std::min(outputs, (size + shift - 1) / stride + 1) : 0;
  *end = std::max(*begin, *end);
}

// Adds the products of `samples` samples to sums (taps, C), channels [begin, end).
RUNNEL_TORCH_SIMD void WeightGradientSamples(const Depthwise& d, const float* dy, const float* x,
                                             int64_t samples, int64_t begin, int64_t end,
                                             float* sums) {
  const Window& win = d.window;
  const int64_t channels = d.channels;
  for (int64_t tap = 0; tap < d.taps(); ++tap) {
    const int64_t kh = tap / win.kw, kw = tap % win.kw;
    int64_t top, bottom, left, right;
    ValidRange(d.x.h, d.y.h, kh, win.sh, win.ph, &top, &bottom);
    ValidRange(d.x.w, d.y.w, kw, win.sw, win.pw, &left, &right);
    ForTiles(begin, end, [&]<typename T>(int64_t c) RUNNEL_TORCH_INLINE {
      T sum;
      sum.Zero();
      for (int64_t n = 0; n < samples; ++n) {
        for (int64_t oh = top; oh < bottom; ++oh) {
          const int64_t h = n * d.x.h + oh * win.sh - win.ph + kh;
          const float* g = dy + ((n * d.y.h + oh) * d.y.w + left) * channels + c;
          const float* s = x + (h * d.x.w + left * win.sw - win.pw + kw) * channels + c;
          for (int64_t ow = left; ow < right; ++ow) {
            T a, b;
            a.Load(g);
            b.Load(s);
            for (size_t k = 0; k < std::size(sum.v); ++k) sum.v[k] += a.v[k] * b.v[k];
            g += channels;
            s += win.sw * channels;
          }
        }
      }
      sum.Store(sums + tap * channels + c);
    });
  }
}

}  // namespace

void DepthwiseForward(const Call& call) {
  const Depthwise d = DepthwiseOf(call, call.in_shape(0), call.out_shape(0));
  const float* w = TransposedWeights(d, call.in(1), call.arena);
  const int64_t x_size = d.x.positions() * d.channels, y_size = d.y.positions() * d.channels;
  const float* bias = call.inputs.size() > 2 ? call.in(2) : nullptr;
  ParallelFor(d.x.n, [&](int64_t begin, int64_t end) {
    Taps taps(d.taps());
    for (int64_t n = begin; n < end; ++n) {
      float* y = call.out(0) + n * y_size;
      ForwardSample(d, call.in(0) + n * x_size, w, y, &taps);
      for (int64_t i = 0; bias != nullptr && i < y_size; i += d.channels) {
        for (int64_t c = 0; c < d.channels; ++c) y[i + c] += bias[c];
      }
    }
  });
}

void DepthwiseInputGradient(const Call& call) {
  const Depthwise d = DepthwiseOf(call, call.out_shape(0), call.in_shape(0));
  const float* w = TransposedWeights(d, call.in(1), call.arena);
  const int64_t x_size = d.x.positions() * d.channels, y_size = d.y.positions() * d.channels;
  ParallelFor(d.x.n, [&](int64_t begin, int64_t end) {
    Taps taps(d.taps());
    for (int64_t n = begin; n < end; ++n) {
      InputGradientSample(d, call.in(0) + n * y_size, w, call.out(0) + n * x_size, &taps);
    }
  });
}

void DepthwiseWeightGradient(const Call& call, float* dweight) {
  const Depthwise d = DepthwiseOf(call, call.in_shape(1), call.in_shape(0));
  const int64_t channels = d.channels, taps = d.taps();
  // Few enough products are summed in single precision that the error stays near one rounding.
  const int64_t chunk = std::max<int64_t>(1, 256 / d.y.positions());
  double* total = reinterpret_cast<double*>(
      call.arena->Get(taps * channels * static_cast<int64_t>(sizeof(double) + sizeof(float))));
  float* part = reinterpret_cast<float*>(total + taps * channels);
  std::fill_n(total, taps * channels, 0.0);
  ParallelFor((channels + 63) / 64, [&](int64_t first, int64_t last) {
    const int64_t begin = first * 64, end = std::min(channels, last * 64);
    for (int64_t n = 0; n < d.x.n; n += chunk) {
      WeightGradientSamples(d, call.in(0) + n * d.y.positions() * channels,
                            call.in(1) + n * d.x.positions() * channels, std::min(chunk, d.x.n - n),
                            begin, end, part);
      for (int64_t t = 0; t < taps; ++t) {
        for (int64_t c = begin; c < end; ++c) total[t * channels + c] += part[t * channels + c];
      }
    }
  });
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t t = 0; t < taps; ++t) {
      dweight[c * taps + t] = static_cast<float>(total[t * channels + c]);
    }
  }
}

}  // namespace runnel::torch_kernels
