// Pooling, channels-last.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/torch/kernel.h"
#include "kernels/torch/simd.h"

namespace runnel::torch_kernels {
namespace {

struct Pool {
  Image x, y;
  Window window;
};

Pool PoolOf(const Call& call, const Shape& x, const Shape& y) {
  return {ImageOf(x), ImageOf(y), WindowOf(call.instruction->attributes, x)};
}

// Takes over larger values and, above all, the first NaN.
RUNNEL_TORCH_SIMD void TakeMaximum(const float* __restrict x, int64_t channels, int32_t position,
                                   float* __restrict best, int32_t* __restrict where) {
  for (int64_t c = 0; c < channels; ++c) {
    const bool take = !(x[c] <= best[c]) & (best[c] == best[c]);
    best[c] = take ? x[c] : best[c];
    where[c] = take ? position : where[c];
  }
}

RUNNEL_TORCH_SIMD void AddRow(const float* __restrict x, int64_t channels, float* __restrict sum) {
  for (int64_t c = 0; c < channels; ++c) sum[c] += x[c];
}

RUNNEL_TORCH_SIMD void ScaleRow(const float* x, int64_t channels, float factor, float* y) {
  for (int64_t c = 0; c < channels; ++c) y[c] = x[c] * factor;
}

void MaxPoolSample(const Pool& p, const float* x, float* y, uint8_t* indices, int32_t* where) {
  const int64_t channels = p.x.c;
  for (int64_t o = 0; o < p.y.positions(); ++o) {
    // The window's part that lies inside the plane; never empty.
    const int64_t h = o / p.y.w * p.window.sh - p.window.ph;
    const int64_t w = o % p.y.w * p.window.sw - p.window.pw;
    const int64_t top = std::max<int64_t>(h, 0), bottom = std::min(h + p.window.kh, p.x.h);
    const int64_t left = std::max<int64_t>(w, 0), right = std::min(w + p.window.kw, p.x.w);
    float* best = y + o * channels;
    std::copy_n(x + (top * p.x.w + left) * channels, channels, best);
    std::fill_n(where, channels, static_cast<int32_t>((top - h) * p.window.kw + left - w));
    for (int64_t row = top; row < bottom; ++row) {
      for (int64_t column = left; column < right; ++column) {
        if (row == top && column == left) continue;
        TakeMaximum(x + (row * p.x.w + column) * channels, channels,
                    static_cast<int32_t>((row - h) * p.window.kw + column - w), best, where);
      }
    }
    if (indices != nullptr) std::copy_n(where, channels, indices + o * channels);
  }
}

// Position in the plane of the first element of an output's window; padding lies before it.
int64_t OriginOf(const Pool& p, int64_t o) {
  return (o / p.y.w * p.window.sh - p.window.ph) * p.x.w + o % p.y.w * p.window.sw - p.window.pw;
}

}  // namespace

absl::Status MaxPoolForward(const Call& call) {
  const Pool p = PoolOf(call, call.in_shape(0), call.out_shape(0));
  const int64_t x_size = p.x.positions() * p.x.c, y_size = p.y.positions() * p.y.c;
  uint8_t* indices = call.outputs.size() > 1 ? call.out<uint8_t>(1) : nullptr;
  ParallelFor(p.x.n, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> where(p.x.c);
    for (int64_t n = begin; n < end; ++n) {
      MaxPoolSample(p, call.in(0) + n * x_size, call.out(0) + n * y_size,
                    indices == nullptr ? nullptr : indices + n * y_size, where.data());
    }
  });
  return absl::OkStatus();
}

absl::Status MaxPoolInputGradient(const Call& call) {
  const Pool p = PoolOf(call, call.out_shape(0), call.in_shape(0));
  const int64_t channels = p.x.c;
  const int64_t x_size = p.x.positions() * channels, y_size = p.y.positions() * channels;
  ParallelFor(p.x.n, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* dy = call.in(0) + n * y_size;
      const uint8_t* taps = call.in<uint8_t>(1) + n * y_size;
      float* dx = call.out(0) + n * x_size;
      std::fill_n(dx, x_size, 0.0f);
      for (int64_t o = 0; o < p.y.positions(); ++o, dy += channels, taps += channels) {
        const int64_t origin = OriginOf(p, o);
        for (int64_t c = 0; c < channels; ++c) {
          const int64_t at = origin + taps[c] / p.window.kw * p.x.w + taps[c] % p.window.kw;
          dx[at * channels + c] += dy[c];
        }
      }
    }
  });
  return absl::OkStatus();
}

absl::Status AvgPoolForward(const Call& call) {
  const Pool p = PoolOf(call, call.in_shape(0), call.out_shape(0));
  const int64_t channels = p.x.c, area = p.window.kh * p.window.kw;
  ParallelFor(p.x.n, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin * p.y.positions(); o < end * p.y.positions(); ++o) {
      const int64_t n = o / p.y.positions(), at = o % p.y.positions();
      const int64_t top = at / p.y.w * p.window.sh, left = at % p.y.w * p.window.sw;
      float* y = call.out(0) + o * channels;
      std::fill_n(y, channels, 0.0f);
      for (int64_t k = 0; k < area; ++k) {
        const int64_t h = top + k / p.window.kw, w = left + k % p.window.kw;
        AddRow(call.in(0) + ((n * p.x.h + h) * p.x.w + w) * channels, channels, y);
      }
      ScaleRow(y, channels, 1.0f / static_cast<float>(area), y);
    }
  });
  return absl::OkStatus();
}

absl::Status AvgPoolInputGradient(const Call& call) {
  const Pool p = PoolOf(call, call.out_shape(0), call.in_shape(0));
  const int64_t channels = p.x.c, area = p.window.kh * p.window.kw;
  const int64_t x_size = p.x.positions() * channels;
  ParallelFor(p.x.n, [&](int64_t begin, int64_t end) {
    std::vector<float> share(channels);
    for (int64_t n = begin; n < end; ++n) {
      float* dx = call.out(0) + n * x_size;
      std::fill_n(dx, x_size, 0.0f);
      for (int64_t o = 0; o < p.y.positions(); ++o) {
        const int64_t top = o / p.y.w * p.window.sh, left = o % p.y.w * p.window.sw;
        ScaleRow(call.in(0) + (n * p.y.positions() + o) * channels, channels,
                 1.0f / static_cast<float>(area), share.data());
        for (int64_t k = 0; k < area; ++k) {
          const int64_t at = (top + k / p.window.kw) * p.x.w + left + k % p.window.kw;
          AddRow(share.data(), channels, dx + at * channels);
        }
      }
    }
  });
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolForward(const Call& call) {
  const Image x = ImageOf(call.in_shape(0));
  const float factor = 1.0f / static_cast<float>(x.positions());
  ParallelFor(x.n, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float* y = call.out(0) + n * x.c;
      ColumnSums(call.in(0) + n * x.positions() * x.c, x.positions(), x.c, y);
      ScaleRow(y, x.c, factor, y);
    }
  });
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolInputGradient(const Call& call) {
  const Image x = ImageOf(call.out_shape(0));
  const float factor = 1.0f / static_cast<float>(x.positions());
  ParallelFor(x.n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin * x.positions(); r < end * x.positions(); ++r) {
      ScaleRow(call.in(0) + r / x.positions() * x.c, x.c, factor, call.out(0) + r * x.c);
    }
  });
  return absl::OkStatus();
}

}  // namespace runnel::torch_kernels
