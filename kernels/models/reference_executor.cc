// The specification: each formula of int8_graph.h as it stands there.

#include <algorithm>

#include "kernels/models/int8_executor.h"
#include "kernels/models/product/real_conv.h"

namespace runnel::inference {
namespace {

// The sum of one output element, bias included.
int64_t SumAt(const Int8Node& n, const Coding& in, const int8_t* x, int64_t oh, int64_t ow,
              int64_t o) {
  const cpu::ConvShape& s = n.node.shape;
  const int64_t ins = s.group_in(), first = o / s.group_out() * ins;
  const int32_t weight_zero = n.weight_zeros.empty() ? 0 : n.weight_zeros[o];
  int64_t sum = n.bias[o];
  for (int64_t tap = 0; tap < s.taps(); ++tap) {
    const int64_t ih = oh * s.stride_h - s.pad_h + tap / s.kernel_w;
    const int64_t iw = ow * s.stride_w - s.pad_w + tap % s.kernel_w;
    if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;  // real 0
    const int8_t* pixel = x + (ih * s.in_w + iw) * s.in_c + first;
    const int8_t* w = &n.weights[(o * s.taps() + tap) * ins];
    for (int64_t i = 0; i < ins; ++i) sum += (pixel[i] - in.zero) * (w[i] - weight_zero);
  }
  return sum;
}

void Convolve(const Int8Node& n, const Coding& in, const int8_t* x, int8_t* y, float* logits) {
  const cpu::ConvShape& s = n.node.shape;
  const CodeLimits limits = LimitsOf(n);
  for (int64_t oh = 0; oh < s.out_h; ++oh) {
    for (int64_t ow = 0; ow < s.out_w; ++ow) {
      for (int64_t o = 0; o < s.out_c; ++o) {
        const int64_t at = (oh * s.out_w + ow) * s.out_c + o;
        const int32_t sum = SaturateSum(SumAt(n, in, x, oh, ow, o));
        if (n.gives_logits()) {
          logits[at] = static_cast<float>(sum * n.logit_scales[o]);
        } else {
          y[at] =
              ClampCode(Multiply(sum, n.factors[o]) + n.coding.zero, limits.lowest, limits.highest);
        }
      }
    }
  }
}

}  // namespace

void ReferenceExecutor::RunNodes(const float* samples, const int8_t* given, int64_t batch,
                                 absl::Span<float> logits) {
  codes_.resize(graph_.nodes.size());
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Int8Node& n = graph_.nodes[i];
    const int64_t outs = n.node.outputs();
    codes_[i].assign(batch * outs, 0);
    if (i == 0 && graph_.takes_codes) {
      std::copy_n(given, batch * outs, codes_[i].begin());
      continue;
    }
    const bool is_end = i + 1 == graph_.nodes.size() && !graph_.gives_codes;
    const auto input = [&](int k, int64_t sample) -> const int8_t* {
      if (n.node.input_count() <= k) return nullptr;
      const int32_t from = n.node.inputs[k];
      return &codes_[from][sample * graph_.nodes[from].node.outputs()];
    };
    for (int64_t b = 0; b < batch; ++b) {
      int8_t* y = &codes_[i][b * outs];
      float* real = is_end ? &logits[b * outs] : nullptr;
      const float* sample =
          graph_.takes_codes ? nullptr : samples + b * graph_.nodes[0].node.outputs();
      if (n.is_real()) {
        RealConv(graph_, i, CodeLoopsFor(Isa::kPortable)).Run(sample, input(0, b), y, real);
      } else if (n.node.kind == NodeKind::kConv) {
        Convolve(n, graph_.input(n).coding, input(0, b), y, real);
      } else {
        RunPlainNode(graph_, n, sample, input(0, b), input(1, b), y);
      }
      if (is_end && !n.gives_logits()) Decode(n.coding, y, outs, real);
    }
  }
}

}  // namespace runnel::inference
