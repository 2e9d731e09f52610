#pragma once

// The products of integers of a layer: which elements meet. Private to kernels/backends/ref.

#include <cstdint>

#include "kernels/backends/ref/window.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/tensor/shape.h"

namespace runnel::ref {

// Of a conv, and of a linear layer as a 1x1 conv on one position.
struct ProductGeometry {
  int64_t batch = 0, in_channels = 0, out_channels = 0, group_in = 0, group_out = 0;
  Window window;

  int64_t In(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return ((n * in_channels + c) * window.h.in + h) * window.w.in + w;
  }
  int64_t Out(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return ((n * out_channels + c) * window.h.out + h) * window.w.out + w;
  }
  // Weights lie (out, kernel..., in).
  int64_t Weight(int64_t oc, int64_t kh, int64_t kw, int64_t g) const {
    return ((oc * window.h.kernel + kh) * window.w.kernel + kw) * group_in + g;
  }
};

inline ProductGeometry ProductGeometryOf(const OpSpec& op, const Shape& x, const Shape& y) {
  if (op.kind == OpKind::kLinear) return {x[0], x[1], y[1], x[1], y[1], Window{}};
  return {x[0], x[1], y[1], x[1] / op.groups, y[1] / op.groups, WindowOf(op, x, y)};
}

// Calls body(input index, output index, weight index) for each product of the layer.
template <typename Body>
void ForEachProduct(const ProductGeometry& g, const Body& body) {
  const Axis &h = g.window.h, &w = g.window.w;
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t oc = 0; oc < g.out_channels; ++oc) {
      const int64_t first_in = oc / g.group_out * g.group_in;
      for (int64_t i = 0; i < g.group_in; ++i) {
        for (int64_t kh = 0; kh < h.kernel; ++kh) {
          for (int64_t oh = h.OutBegin(kh); oh < h.OutEnd(kh); ++oh) {
            for (int64_t kw = 0; kw < w.kernel; ++kw) {
              const int64_t weight = g.Weight(oc, kh, kw, i);
              const int64_t in = g.In(n, first_in + i, h.Input(oh, kh), 0);
              const int64_t out = g.Out(n, oc, oh, 0);
              for (int64_t ow = w.OutBegin(kw); ow < w.OutEnd(kw); ++ow) {
                body(in + w.Input(ow, kw), out + ow, weight);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace runnel::ref
