#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/backends/ref/window.h"

namespace runnel::ref {
namespace {

// Position in the input's plane of a tap of output (oh, ow).
int64_t PositionOf(const Window& window, int64_t oh, int64_t ow, int64_t tap) {
  return window.h.Input(oh, tap / window.w.kernel) * window.w.in +
         window.w.Input(ow, tap % window.w.kernel);
}

// The tap of the first maximum that output (oh, ow) sees; of the first NaN if there is one. Padding
// is not seen.
int64_t MaxTap(const Window& window, const float* x, int64_t oh, int64_t ow) {
  const int64_t top = window.h.TapBegin(oh), left = window.w.TapBegin(ow);
  int64_t best = top * window.w.kernel + left;
  for (int64_t kh = top; kh < window.h.TapEnd(oh); ++kh) {
    for (int64_t kw = left; kw < window.w.TapEnd(ow); ++kw) {
      const int64_t tap = kh * window.w.kernel + kw;
      const float value = x[PositionOf(window, oh, ow, tap)];
      if (std::isnan(value)) return tap;
      if (value > x[PositionOf(window, oh, ow, best)]) best = tap;
    }
  }
  return best;
}

// Calls body(tap) for the taps of output o that lie inside the plane, in ascending order.
template <typename Body>
void ForTaps(const Window& window, int64_t o, const Body& body) {
  const int64_t oh = o / window.w.out, ow = o % window.w.out;
  for (int64_t kh = window.h.TapBegin(oh); kh < window.h.TapEnd(oh); ++kh) {
    for (int64_t kw = window.w.TapBegin(ow); kw < window.w.TapEnd(ow); ++kw)
      body(kh * window.w.kernel + kw);
  }
}

// What a mean divides by.
double DivisorOf(const OpSpec& op, const Window& window, int64_t o) {
  int64_t inside = 0;
  ForTaps(window, o, [&](int64_t) { ++inside; });
  return static_cast<double>(op.counts_padding ? window.taps() : inside);
}

int64_t Planes(const Shape& shape) { return shape[0] * shape[1]; }

}  // namespace

absl::Status MaxPoolForward(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.in_shape(0), call.out_shape(0));
  const bool keep_indices = call.has_output(1);
  int64_t o = 0;
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane) {
    const float* x = call.in(0) + plane * window.in_plane();
    for (int64_t oh = 0; oh < window.h.out; ++oh) {
      for (int64_t ow = 0; ow < window.w.out; ++ow, ++o) {
        const int64_t tap = MaxTap(window, x, oh, ow);
        call.out(0)[o] = x[PositionOf(window, oh, ow, tap)];
        if (keep_indices) call.out<uint8_t>(1)[o] = static_cast<uint8_t>(tap);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status MaxPoolInputGradient(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.out_shape(0), call.in_shape(0));
  std::vector<double> sums(window.in_plane());
  const float* dy = call.in(0);
  const uint8_t* taps = call.in<uint8_t>(1);
  float* dx = call.out(0);
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t o = 0; o < window.out_plane(); ++o) {
      sums[PositionOf(window, o / window.w.out, o % window.w.out, *taps++)] += *dy++;
    }
    for (double sum : sums) *dx++ = static_cast<float>(sum);
  }
  return absl::OkStatus();
}

absl::Status AvgPoolForward(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.in_shape(0), call.out_shape(0));
  float* y = call.out(0);
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane) {
    const float* x = call.in(0) + plane * window.in_plane();
    for (int64_t o = 0; o < window.out_plane(); ++o) {
      double sum = 0;
      ForTaps(window, o, [&](int64_t tap) {
        sum += x[PositionOf(window, o / window.w.out, o % window.w.out, tap)];
      });
      *y++ = static_cast<float>(sum / DivisorOf(call.attributes(), window, o));
    }
  }
  return absl::OkStatus();
}

absl::Status AvgPoolInputGradient(const Call& call) {
  const Window window = WindowOf(call.attributes(), call.out_shape(0), call.in_shape(0));
  const bool is_padded = call.attributes().is_padded();
  std::vector<double> sums(window.in_plane());
  const float* dy = call.in(0);
  float* dx = call.out(0);
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t o = 0; o < window.out_plane(); ++o, ++dy) {
      // Of windows that all lie inside, the sum is divided once.
      const double share = is_padded ? *dy / DivisorOf(call.attributes(), window, o) : double{*dy};
      ForTaps(window, o, [&](int64_t tap) {
        sums[PositionOf(window, o / window.w.out, o % window.w.out, tap)] += share;
      });
    }
    const double divisor = is_padded ? 1 : static_cast<double>(window.taps());
    for (double sum : sums) *dx++ = static_cast<float>(sum / divisor);
  }
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolForward(const Call& call) {
  const int64_t inner = call.in_shape(0).elements() / Planes(call.in_shape(0));
  const float* x = call.in(0);
  for (int64_t plane = 0; plane < Planes(call.in_shape(0)); ++plane) {
    double sum = 0;
    for (int64_t i = 0; i < inner; ++i) sum += *x++;
    call.out(0)[plane] = static_cast<float>(sum / static_cast<double>(inner));
  }
  return absl::OkStatus();
}

absl::Status GlobalAvgPoolInputGradient(const Call& call) {
  const int64_t inner = call.out_shape(0).elements() / Planes(call.out_shape(0));
  float* dx = call.out(0);
  for (int64_t plane = 0; plane < Planes(call.out_shape(0)); ++plane) {
    const float value = static_cast<float>(call.in(0)[plane] / static_cast<double>(inner));
    for (int64_t i = 0; i < inner; ++i) *dx++ = value;
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
