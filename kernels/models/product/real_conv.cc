#include "kernels/models/product/real_conv.h"

#include <algorithm>

#include "kernels/models/graph/folded_graph.h"
#include "kernels/models/int8_executor.h"

namespace runnel::inference {

RealConv::RealConv(const Int8Graph& graph, size_t at, const CodeLoops& loops)
    : graph_(graph), at_(at), loops_(loops) {
  const Int8Node& n = graph.nodes[at];
  const cpu::ConvShape& s = n.node.shape;
  const int64_t rows = s.taps() * s.group_in(), outs = s.group_out();
  packed_.resize(n.real_weights.size());
  for (int64_t o = 0; o < s.out_c; ++o) {
    float* group = &packed_[o / outs * rows * outs];
    for (int64_t r = 0; r < rows; ++r) group[r * outs + o % outs] = n.real_weights[o * rows + r];
  }
  input_.resize(s.in_h * s.in_w * s.in_c);
  sums_.resize(s.out_c);
}

void RealConv::SumAt(int64_t oh, int64_t ow) {
  const Int8Node& n = graph_.nodes[at_];
  const cpu::ConvShape& s = n.node.shape;
  const int64_t ins = s.group_in(), outs = s.group_out();
  std::copy(n.real_bias.begin(), n.real_bias.end(), sums_.begin());
  for (int64_t tap = 0; tap < s.taps(); ++tap) {
    const int64_t ih = oh * s.stride_h - s.pad_h + tap / s.kernel_w;
    const int64_t iw = ow * s.stride_w - s.pad_w + tap % s.kernel_w;
    if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;  // real 0
    const float* pixel = &input_[(ih * s.in_w + iw) * s.in_c];
    for (int64_t g = 0; g < s.groups; ++g) {
      loops_.add_products(pixel + g * ins, ins, &packed_[(g * s.taps() + tap) * ins * outs], outs,
                          &sums_[g * outs]);
    }
  }
}

void RealConv::Run(const float* sample, const int8_t* x, int8_t* codes, float* logits) {
  const Int8Node& n = graph_.nodes[at_];
  const cpu::ConvShape& s = n.node.shape;
  if (n.node.inputs[0] == 0 && !graph_.takes_codes) {
    ToChannelsLast(sample, s.in_h * s.in_w, s.in_c, input_.data());
  } else {
    Decode(graph_.input(n).coding, x, static_cast<int64_t>(input_.size()), input_.data());
  }
  const CodeLimits limits = LimitsOf(n);
  const auto inverse = static_cast<float>(1 / n.coding.scale);
  for (int64_t p = 0; p < s.out_h * s.out_w; ++p) {
    SumAt(p / s.out_w, p % s.out_w);
    if (n.gives_logits()) {
      std::copy(sums_.begin(), sums_.end(), logits + p * s.out_c);
      continue;
    }
    int8_t* y = codes + p * s.out_c;
    loops_.encode(sums_.data(), s.out_c, inverse, n.coding.zero, n.coding.max_code, y);
    for (int64_t o = 0; o < s.out_c; ++o) y[o] = ClampCode(y[o], limits.lowest, limits.highest);
  }
}

}  // namespace runnel::inference
