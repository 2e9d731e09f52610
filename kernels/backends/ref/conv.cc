#include <algorithm>
#include <vector>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/backends/ref/window.h"

namespace runnel::ref {
namespace {

struct ConvShape {
  int64_t batch, in_channels, out_channels, group_in, group_out;
  Window window;

  int64_t FirstIn(int64_t oc) const { return oc / group_out * group_in; }
  // Offset of the weights of one (out channel, in channel of the group).
  int64_t Taps(int64_t oc, int64_t g) const { return (oc * group_in + g) * window.taps(); }
};

ConvShape ShapeOf(const OpSpec& op, const Shape& x, const Shape& y) {
  return {x[0], x[1], y[1], x[1] / op.groups, y[1] / op.groups, WindowOf(op, x, y)};
}

// Calls body(input position, output position) for each pair that tap (kh, kw) connects, by output.
template <typename Body>
void ForEachPair(const Window& window, int64_t kh, int64_t kw, const Body& body) {
  const int64_t begin = window.w.OutBegin(kw), end = window.w.OutEnd(kw);
  for (int64_t oh = window.h.OutBegin(kh); oh < window.h.OutEnd(kh); ++oh) {
    const int64_t in_row = window.h.Input(oh, kh) * window.w.in;
    const int64_t out_row = oh * window.w.out;
    for (int64_t ow = begin; ow < end; ++ow) body(in_row + window.w.Input(ow, kw), out_row + ow);
  }
}

// sums[tap] += sum over the outputs of one plane pair of dy * x.
void AddTapSums(const Window& window, const float* dy, const float* x, double* sums) {
  for (int64_t oh = 0; oh < window.h.out; ++oh) {
    const int64_t kh_begin = window.h.TapBegin(oh), kh_end = window.h.TapEnd(oh);
    for (int64_t ow = 0; ow < window.w.out; ++ow) {
      const int64_t kw_begin = window.w.TapBegin(ow), kw_end = window.w.TapEnd(ow);
      const double gradient = dy[oh * window.w.out + ow];
      for (int64_t kh = kh_begin; kh < kh_end; ++kh) {
        const float* row = x + window.h.Input(oh, kh) * window.w.in;
        double* row_sums = sums + kh * window.w.kernel;
        for (int64_t kw = kw_begin; kw < kw_end; ++kw)
          row_sums[kw] += gradient * row[window.w.Input(ow, kw)];
      }
    }
  }
}

}  // namespace

// y = bias + sum over (in channel, kh, kw), in this order.
absl::Status ConvForward(const Call& call) {
  const ConvShape s = ShapeOf(call.attributes(), call.in_shape(0), call.out_shape(0));
  const Window& window = s.window;
  std::vector<double> sums(window.out_plane());
  float* y = call.out(0);
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t oc = 0; oc < s.out_channels; ++oc) {
      std::fill(sums.begin(), sums.end(), call.has_input(2) ? call.in(2)[oc] : 0.0);
      for (int64_t g = 0; g < s.group_in; ++g) {
        const float* x = call.in(0) + (n * s.in_channels + s.FirstIn(oc) + g) * window.in_plane();
        const float* weight = call.in(1) + s.Taps(oc, g);
        for (int64_t tap = 0; tap < window.taps(); ++tap) {
          const double w = weight[tap];
          ForEachPair(window, tap / window.w.kernel, tap % window.w.kernel,
                      [&](int64_t i, int64_t o) { sums[o] += w * x[i]; });
        }
      }
      for (double sum : sums) *y++ = static_cast<float>(sum);
    }
  }
  return absl::OkStatus();
}

// dx = sum over (out channel of the group, kh, kw) of weight * dy.
absl::Status ConvInputGradient(const Call& call) {
  const ConvShape s = ShapeOf(call.attributes(), call.out_shape(0), call.in_shape(0));
  const Window& window = s.window;
  std::vector<double> sums(window.in_plane());
  float* dx = call.out(0);
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t ic = 0; ic < s.in_channels; ++ic) {
      std::fill(sums.begin(), sums.end(), 0.0);
      const int64_t first_out = ic / s.group_in * s.group_out;
      for (int64_t oc = first_out; oc < first_out + s.group_out; ++oc) {
        const float* dy = call.in(0) + (n * s.out_channels + oc) * window.out_plane();
        const float* weight = call.in(1) + s.Taps(oc, ic % s.group_in);
        for (int64_t tap = 0; tap < window.taps(); ++tap) {
          const double w = weight[tap];
          ForEachPair(window, tap / window.w.kernel, tap % window.w.kernel,
                      [&](int64_t i, int64_t o) { sums[i] += w * dy[o]; });
        }
      }
      for (double sum : sums) *dx++ = static_cast<float>(sum);
    }
  }
  return absl::OkStatus();
}

// dweight = sum over (sample, output position) of dy * x; dbias = the same of dy.
absl::Status ConvWeightGradient(const Call& call) {
  const ConvShape s = ShapeOf(call.attributes(), call.in_shape(1), call.in_shape(0));
  const Window& window = s.window;
  const auto dy_plane = [&](int64_t n, int64_t oc) {
    return call.in(0) + (n * s.out_channels + oc) * window.out_plane();
  };
  std::vector<double> sums(window.taps());
  for (int64_t oc = 0; oc < s.out_channels; ++oc) {
    for (int64_t g = 0; g < s.group_in; ++g) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int64_t n = 0; n < s.batch; ++n) {
        const float* x = call.in(1) + (n * s.in_channels + s.FirstIn(oc) + g) * window.in_plane();
        AddTapSums(window, dy_plane(n, oc), x, sums.data());
      }
      float* dweight = call.out(0) + s.Taps(oc, g);
      for (double sum : sums) StoreGradient(call, static_cast<float>(sum), dweight++);
    }
    if (!call.has_output(1)) continue;
    double sum = 0;
    for (int64_t n = 0; n < s.batch; ++n) {
      for (int64_t i = 0; i < window.out_plane(); ++i) sum += dy_plane(n, oc)[i];
    }
    StoreGradient(call, static_cast<float>(sum), call.out(1) + oc);
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
