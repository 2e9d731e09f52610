// Products whose sums are rounded after each addition, term by term.

#include <vector>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/backends/ref/window.h"
#include "kernels/ir/arithmetic/float_grid.h"

namespace runnel::ref {
namespace {

// Groups of channels and a window; a linear layer has one position.
struct Geometry {
  int64_t batch, in_channels, out_channels, group_in, group_out;
  Window window;

  int64_t FirstIn(int64_t oc) const { return oc / group_out * group_in; }
  int64_t FirstOut(int64_t ic) const { return ic / group_in * group_out; }
  int64_t Weight(int64_t oc, int64_t g, int64_t tap) const {
    return (oc * group_in + g) * window.taps() + tap;
  }
};

Geometry GeometryOf(const Call& call, const Shape& x, const Shape& y) {
  if (x.rank() == 2) return {x[0], x[1], y[1], x[1], y[1], {}};
  const OpSpec& op = call.attributes();
  return {x[0], x[1], y[1], x[1] / op.groups, y[1] / op.groups, WindowOf(op, x, y)};
}

// The input position that a tap of an output position reads; -1: the padding.
int64_t InputOf(const Window& window, int64_t out, int64_t tap) {
  const int64_t h = window.h.Input(out / window.w.out, tap / window.w.kernel);
  const int64_t w = window.w.Input(out % window.w.out, tap % window.w.kernel);
  const bool inside = h >= 0 && h < window.h.in && w >= 0 && w < window.w.in;
  return inside ? h * window.w.in + w : -1;
}

// The output that reads an input at a tap of one axis; -1: none.
int64_t OutputOn(const Axis& axis, int64_t in, int64_t tap) {
  const int64_t from = in + axis.padding - tap * axis.dilation;
  return from >= 0 && from % axis.stride == 0 && from / axis.stride < axis.out ? from / axis.stride
                                                                               : -1;
}
int64_t OutputOf(const Window& window, int64_t in, int64_t tap) {
  const int64_t h = OutputOn(window.h, in / window.w.in, tap / window.w.kernel);
  const int64_t w = OutputOn(window.w, in % window.w.in, tap % window.w.kernel);
  return h < 0 || w < 0 ? -1 : h * window.w.out + w;
}

float At(const float* plane, int64_t position) { return position < 0 ? 0 : plane[position]; }

}  // namespace

absl::Status ChunkedForward(const Call& call) {
  const Geometry g = GeometryOf(call, call.in_shape(0), call.out_shape(0));
  const Window& window = g.window;
  const FloatGrid format(call.grid());
  float* y = call.out(0);
  for (int64_t row = 0; row < g.batch * g.out_channels; ++row) {
    const int64_t n = row / g.out_channels, oc = row % g.out_channels;
    for (int64_t out = 0; out < window.out_plane(); ++out) {
      ChunkSum sum(format, call.grid().chunk);
      for (int64_t ic = 0; ic < g.group_in; ++ic) {
        const float* x = call.in(0) + (n * g.in_channels + g.FirstIn(oc) + ic) * window.in_plane();
        for (int64_t tap = 0; tap < window.taps(); ++tap)
          sum.Add(call.in(1)[g.Weight(oc, ic, tap)], At(x, InputOf(window, out, tap)));
      }
      const float product = sum.Sum();
      *y++ = call.has_input(2) ? format.Nearest(product + call.in(2)[oc]) : product;
    }
  }
  return absl::OkStatus();
}

absl::Status ChunkedInputGradient(const Call& call) {
  const Geometry g = GeometryOf(call, call.out_shape(0), call.in_shape(0));
  const Window& window = g.window;
  const FloatGrid format(call.grid());
  float* dx = call.out(0);
  for (int64_t row = 0; row < g.batch * g.in_channels; ++row) {
    const int64_t n = row / g.in_channels, ic = row % g.in_channels;
    for (int64_t in = 0; in < window.in_plane(); ++in) {
      ChunkSum sum(format, call.grid().chunk);
      for (int64_t oc = g.FirstOut(ic); oc < g.FirstOut(ic) + g.group_out; ++oc) {
        const float* dy = call.in(0) + (n * g.out_channels + oc) * window.out_plane();
        for (int64_t tap = 0; tap < window.taps(); ++tap)
          sum.Add(call.in(1)[g.Weight(oc, ic % g.group_in, tap)],
                  At(dy, OutputOf(window, in, tap)));
      }
      *dx++ = sum.Sum();
    }
  }
  return absl::OkStatus();
}

absl::Status ChunkedWeightGradient(const Call& call) {
  const Geometry g = GeometryOf(call, call.in_shape(1), call.in_shape(0));
  const Window& window = g.window;
  const FloatGrid format(call.grid());
  const auto dy = [&](int64_t n, int64_t oc) {
    return call.in(0) + (n * g.out_channels + oc) * window.out_plane();
  };
  for (int64_t oc = 0; oc < g.out_channels; ++oc) {
    for (int64_t i = 0; i < g.group_in * window.taps(); ++i) {
      const int64_t ic = i / window.taps(), tap = i % window.taps();
      ChunkSum sum(format, call.grid().chunk);
      for (int64_t n = 0; n < g.batch; ++n) {
        const float* x = call.in(1) + (n * g.in_channels + g.FirstIn(oc) + ic) * window.in_plane();
        for (int64_t out = 0; out < window.out_plane(); ++out)
          sum.Add(dy(n, oc)[out], At(x, InputOf(window, out, tap)));
      }
      StoreGradient(call, sum.Sum(), call.out(0) + g.Weight(oc, ic, tap));
    }
    if (!call.has_output(1)) continue;
    double bias = 0;
    for (int64_t n = 0; n < g.batch; ++n) {
      for (int64_t out = 0; out < window.out_plane(); ++out) bias += dy(n, oc)[out];
    }
    StoreGradient(call, static_cast<float>(bias), call.out(1) + oc);
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
