// Nodes without weights.

#include <algorithm>
#include <cmath>

#include "kernels/models/graph/folded_graph.h"
#include "kernels/models/int8_executor.h"

namespace runnel::inference {
namespace {

void Encode(const Int8Node& n, const float* sample, int8_t* y) {
  const cpu::ConvShape& s = n.node.shape;
  const Coding& coding = n.coding;
  const int64_t positions = s.out_h * s.out_w;
  const auto inverse = static_cast<float>(1 / coding.scale);
  for (int64_t c = 0; c < s.out_c; ++c) {
    for (int64_t p = 0; p < positions; ++p) {
      float real = sample[c * positions + p] * inverse;
      real = std::isnan(real) ? -1e6f : std::clamp(real, -1e6f, 1e6f);
      y[p * s.out_c + c] =
          ClampCode(std::llround(real) + coding.zero, -coding.max_code, coding.max_code);
    }
  }
}

void MaxPool(const cpu::ConvShape& s, const int8_t* x, int8_t* y) {
  for (int64_t oh = 0; oh < s.out_h; ++oh) {
    for (int64_t ow = 0; ow < s.out_w; ++ow, y += s.out_c) {
      std::fill(y, y + s.out_c, INT8_MIN);
      for (int64_t tap = 0; tap < s.taps(); ++tap) {
        const int64_t ih = oh * s.stride_h - s.pad_h + tap / s.kernel_w;
        const int64_t iw = ow * s.stride_w - s.pad_w + tap % s.kernel_w;
        if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;
        const int8_t* pixel = x + (ih * s.in_w + iw) * s.in_c;
        for (int64_t c = 0; c < s.in_c; ++c) y[c] = std::max(y[c], pixel[c]);
      }
    }
  }
}

void AvgPool(const Int8Node& n, const Coding& in, const int8_t* x, int8_t* y) {
  const cpu::ConvShape& s = n.node.shape;
  const CodeLimits limits = LimitsOf(n);
  for (int64_t oh = 0; oh < s.out_h; ++oh) {
    for (int64_t ow = 0; ow < s.out_w; ++ow) {
      for (int64_t c = 0; c < s.in_c; ++c, ++y) {
        int64_t sum = 0;
        for (int64_t tap = 0; tap < s.taps(); ++tap) {
          const int64_t ih = oh * s.stride_h + tap / s.kernel_w;
          const int64_t iw = ow * s.stride_w + tap % s.kernel_w;
          sum += x[(ih * s.in_w + iw) * s.in_c + c] - in.zero;
        }
        *y = ClampCode(Multiply(SaturateSum(sum), n.factors[0]) + n.coding.zero, limits.lowest,
                       limits.highest);
      }
    }
  }
}

void Add(const Int8Graph& graph, const Int8Node& n, const int8_t* a, const int8_t* b, int8_t* y) {
  const CodeLimits limits = LimitsOf(n);
  const int32_t zero_a = graph.input(n, 0).coding.zero, zero_b = graph.input(n, 1).coding.zero;
  const int64_t factor_a = n.factors[0].multiplier, factor_b = n.factors[1].multiplier;
  for (int64_t i = 0; i < n.node.outputs(); ++i) {
    const int64_t sum = (a[i] - zero_a) * factor_a + (b[i] - zero_b) * factor_b;
    y[i] = ClampCode(RoundHalfAway(sum, n.factors[0].shift) + n.coding.zero, limits.lowest,
                     limits.highest);
  }
}

void Rescale(const Int8Graph& graph, const Int8Node& n, const int8_t* x, int8_t* y) {
  const CodeLimits limits = LimitsOf(n);
  const int32_t zero = graph.input(n).coding.zero;
  for (int64_t i = 0; i < n.node.outputs(); ++i) {
    y[i] = ClampCode(Multiply(x[i] - zero, n.factors[0]) + n.coding.zero, limits.lowest,
                     limits.highest);
  }
}

}  // namespace

void RunPlainNode(const Int8Graph& graph, const Int8Node& node, const float* sample,
                  const int8_t* x, const int8_t* other, int8_t* y) {
  const cpu::ConvShape& s = node.node.shape;
  switch (node.node.kind) {
    case NodeKind::kInput:
      return Encode(node, sample, y);
    case NodeKind::kMaxPool:
      return MaxPool(s, x, y);
    case NodeKind::kAvgPool:
      return AvgPool(node, graph.input(node).coding, x, y);
    case NodeKind::kAdd:
      return Add(graph, node, x, other, y);
    case NodeKind::kClamp:
      return Rescale(graph, node, x, y);
    case NodeKind::kFlatten:
      for (int64_t c = 0; c < s.in_c; ++c) {
        for (int64_t p = 0; p < s.in_h * s.in_w; ++p) *y++ = x[p * s.in_c + c];
      }
      return;
    case NodeKind::kConv:
      return;  // the executors' own
  }
}

void Decode(const Coding& coding, const int8_t* codes, int64_t count, float* real) {
  for (int64_t i = 0; i < count; ++i) {
    real[i] = static_cast<float>((codes[i] - coding.zero) * coding.scale);
  }
}

}  // namespace runnel::inference
