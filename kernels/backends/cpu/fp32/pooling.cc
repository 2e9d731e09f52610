// Pooling, channels-last.

#include <algorithm>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"

namespace runnel::fp32 {
namespace {

struct Pool {
  Image x, y;
  Window window;

  int64_t x_size() const { return x.positions() * x.c; }
  int64_t y_size() const { return y.positions() * y.c; }
};

Pool PoolOf(const Call& call, const Shape& x, const Shape& y) {
  return {ImageOf(x), ImageOf(y), WindowOf(call.instruction->attributes, x)};
}

// The part of an output's window that lies inside the plane; never empty.
struct WindowPart {
  int64_t top, bottom, left, right;

  WindowPart(const Pool& p, int64_t o) {
    const int64_t h = o / p.y.w * p.window.sh - p.window.ph;
    const int64_t w = o % p.y.w * p.window.sw - p.window.pw;
    top = std::max<int64_t>(h, 0);
    bottom = std::min(h + p.window.kh, p.x.h);
    left = std::max<int64_t>(w, 0);
    right = std::min(w + p.window.kw, p.x.w);
  }
  // body(position in the plane), in ascending order.
  template <typename Body>
  void ForPositions(const Pool& p, const Body& body) const {
    for (int64_t h = top; h < bottom; ++h) {
      for (int64_t w = left; w < right; ++w) body(h * p.x.w + w);
    }
  }
  // What a mean multiplies the sum with.
  float Share(const Pool& p, const OpSpec& op) const {
    const int64_t inside = (bottom - top) * (right - left);
    return 1.0f / static_cast<float>(op.counts_padding ? p.window.kh * p.window.kw : inside);
  }
};

void MaxPoolSample(const Kernels& kernels, const Pool& p, const float* x, float* y,
                   uint8_t* indices, int32_t* where) {
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
        kernels.take_maximum(x + (row * p.x.w + column) * channels, channels,
                             static_cast<int32_t>((row - h) * p.window.kw + column - w), best,
                             where);
      }
    }
    if (indices != nullptr) std::copy_n(where, channels, indices + o * channels);
  }
}

// Element of the plane, relative to the first one of an output's window, by tap; padding lies
// before the plane.
int64_t* TapOffsets(const Call& call, const Pool& p) {
  int64_t* offsets = call.Take<int64_t>(p.window.kh * p.window.kw);
  for (int64_t tap = 0; tap < p.window.kh * p.window.kw; ++tap) {
    offsets[tap] = (tap / p.window.kw * p.x.w + tap % p.window.kw) * p.x.c;
  }
  return offsets;
}

}  // namespace

absl::Status MaxPoolForward(Calls calls) {
  const Call& call = calls[0];
  const Pool p = PoolOf(call, call.in_shape(0), call.out_shape(0));
  uint8_t* indices = call.outputs.size() > 1 ? call.out<uint8_t>(1) : nullptr;
  int32_t* where = call.Take<int32_t>(call.machine.workers() * p.x.c);
  ParallelFor(call.machine, p.x.n, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      MaxPoolSample(call.kernels(), p, call.in(0) + n * p.x_size(), call.out(0) + n * p.y_size(),
                    indices == nullptr ? nullptr : indices + n * p.y_size(),
                    where + worker * p.x.c);
    }
  });
  return absl::OkStatus();
}

absl::Status MaxPoolInputGradient(Calls calls) {
  const Call& call = calls[0];
  const Pool p = PoolOf(call, call.out_shape(0), call.in_shape(0));
  const int64_t channels = p.x.c;
  const int64_t* offsets = TapOffsets(call, p);
  ParallelFor(call.machine, p.x.n, [&](int, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* dy = call.in(0) + n * p.y_size();
      const uint8_t* taps = call.in<uint8_t>(1) + n * p.y_size();
      float* dx = call.out(0) + n * p.x_size();
      std::fill_n(dx, p.x_size(), 0.0f);
      for (int64_t o = 0; o < p.y.positions(); ++o, dy += channels, taps += channels) {
        const int64_t h = o / p.y.w * p.window.sh - p.window.ph;
        const int64_t w = o % p.y.w * p.window.sw - p.window.pw;
        const int64_t origin = (h * p.x.w + w) * channels;
        for (int64_t c = 0; c < channels; ++c) dx[origin + offsets[taps[c]] + c] += dy[c];
      }
    }
  });
  return absl::OkStatus();
}

absl::Status AvgPoolForward(Calls calls) {
  const Call& call = calls[0];
  const Pool p = PoolOf(call, call.in_shape(0), call.out_shape(0));
  const int64_t channels = p.x.c;
  ParallelFor(call.machine, p.x.n, [&](int, int64_t begin, int64_t end) {
    for (int64_t o = begin * p.y.positions(); o < end * p.y.positions(); ++o) {
      const WindowPart part(p, o % p.y.positions());
      const float* x = call.in(0) + o / p.y.positions() * p.x_size();
      float* y = call.out(0) + o * channels;
      std::fill_n(y, channels, 0.0f);
      part.ForPositions(p,
                        [&](int64_t at) { call.kernels().add(y, x + at * channels, channels, y); });
      call.kernels().scale(y, channels, part.Share(p, call.instruction->attributes), y);
    }
  });
  return absl::OkStatus();
}

absl::Status AvgPoolInputGradient(Calls calls) {
  const Call& call = calls[0];
  const Pool p = PoolOf(call, call.out_shape(0), call.in_shape(0));
  const int64_t channels = p.x.c;
  float* shares = call.Take<float>(call.machine.workers() * channels);
  ParallelFor(call.machine, p.x.n, [&](int worker, int64_t begin, int64_t end) {
    float* share = shares + worker * channels;
    for (int64_t n = begin; n < end; ++n) {
      float* dx = call.out(0) + n * p.x_size();
      std::fill_n(dx, p.x_size(), 0.0f);
      for (int64_t o = 0; o < p.y.positions(); ++o) {
        const WindowPart part(p, o);
        call.kernels().scale(call.in(0) + (n * p.y.positions() + o) * channels, channels,
                             part.Share(p, call.instruction->attributes), share);
        part.ForPositions(p, [&](int64_t at) {
          call.kernels().add(dx + at * channels, share, channels, dx + at * channels);
        });
      }
    }
  });
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolForward(Calls calls) {
  const Call& call = calls[0];
  const Image x = ImageOf(call.in_shape(0));
  const float factor = 1.0f / static_cast<float>(x.positions());
  for (int64_t n = 0; n < x.n; ++n) {
    float* y = call.out(0) + n * x.c;
    ColumnSums(call, call.in(0) + n * x.positions() * x.c, x.positions(), x.c, y);
    call.kernels().scale(y, x.c, factor, y);
  }
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolInputGradient(Calls calls) {
  const Call& call = calls[0];
  const Image x = ImageOf(call.out_shape(0));
  const float factor = 1.0f / static_cast<float>(x.positions());
  ParallelFor(call.machine, x.n, [&](int, int64_t begin, int64_t end) {
    for (int64_t r = begin * x.positions(); r < end * x.positions(); ++r) {
      call.kernels().scale(call.in(0) + r / x.positions() * x.c, x.c, factor,
                           call.out(0) + r * x.c);
    }
  });
  return absl::OkStatus();
}

}  // namespace runnel::fp32
