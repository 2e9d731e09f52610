#pragma once

// Geometry of a window that slides over planes; 1d is 2d with height 1. Private to kernels/backends/ref.

#include <algorithm>
#include <cstdint>

#include "proto/base/model/model_spec.h"
#include "proto/base/tensor/shape.h"

namespace runnel::ref {

// One spatial axis: output o reads inputs o * stride + k * dilation - padding, k in [0, kernel).
struct Axis {
  int64_t in = 1;
  int64_t out = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t dilation = 1;

  int64_t Input(int64_t o, int64_t k) const { return o * stride + k * dilation - padding; }
  // The outputs for which tap k lies inside the input: [OutBegin, OutEnd).
  int64_t OutBegin(int64_t k) const {
    const int64_t before = padding - k * dilation;
    return before <= 0 ? 0 : std::min(out, (before + stride - 1) / stride);
  }
  int64_t OutEnd(int64_t k) const {
    const int64_t room = in - 1 - k * dilation + padding;
    return room < 0 ? 0 : std::min(out, room / stride + 1);
  }
  // The taps of output o that lie inside the input: [TapBegin, TapEnd).
  int64_t TapBegin(int64_t o) const { return TapsBefore(-Input(o, 0)); }
  int64_t TapEnd(int64_t o) const { return TapsBefore(in - Input(o, 0)); }

 private:
  // Taps that lie less than `distance` behind the first one.
  int64_t TapsBefore(int64_t distance) const {
    return distance <= 0 ? 0 : std::min(kernel, (distance + dilation - 1) / dilation);
  }
};

struct Window {
  Axis h;
  Axis w;

  int64_t in_plane() const { return h.in * w.in; }
  int64_t out_plane() const { return h.out * w.out; }
  int64_t taps() const { return h.kernel * w.kernel; }
};

// `in` and `out` are (N,C,L) or (N,C,H,W).
inline Window WindowOf(const OpSpec& op, const Shape& in, const Shape& out) {
  const auto axis = [&](int spatial) {
    return Axis{in[2 + spatial],    out[2 + spatial],    op.kernel[spatial],
                op.stride[spatial], op.padding[spatial], op.dilation[spatial]};
  };
  if (in.rank() == 3) return {Axis{}, axis(0)};
  return {axis(0), axis(1)};
}

}  // namespace runnel::ref
