#include "kernels/backends/cpu/fp32/conv_axes.h"

#include <algorithm>

namespace runnel::fp32 {

Axis ForwardAxis(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  Axis axis;
  axis.source = in;
  axis.target = out;
  axis.low = -padding;
  axis.high = (out - 1) * stride - padding + kernel;
  axis.passes.push_back(
      {.count = out, .source_begin = -padding, .source_step = stride, .taps = kernel});
  return axis;
}

Axis GradientAxis(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  Axis axis;
  axis.source = out;
  axis.target = in;
  bool any = false;
  for (int64_t rest = 0; rest < stride; ++rest) {
    AxisPass pass;
    pass.target_begin = ((rest - padding) % stride + stride) % stride;
    pass.target_step = stride;
    if (pass.target_begin >= in) continue;
    pass.count = (in - pass.target_begin + stride - 1) / stride;
    pass.taps = rest < kernel ? (kernel - rest + stride - 1) / stride : 0;
    // Target t meets kernel position rest + stride * j at source (t + padding - rest) / stride - j.
    pass.source_begin = (pass.target_begin + padding - rest) / stride - (pass.taps - 1);
    pass.tap_begin = rest + stride * (pass.taps - 1);
    pass.tap_step = -stride;
    if (pass.taps > 0) {
      const int64_t high = pass.source_begin + pass.count - 1 + pass.taps;
      axis.low = any ? std::min(axis.low, pass.source_begin) : pass.source_begin;
      axis.high = any ? std::max(axis.high, high) : high;
      any = true;
    }
    axis.passes.push_back(pass);
  }
  return axis;
}

std::vector<AxisPart> PartsInside(const AxisPass& pass, int64_t source) {
  std::vector<AxisPart> parts;
  for (int64_t i = 0; i < pass.count; ++i) {
    const int64_t first = pass.source_begin + i * pass.source_step;
    const int64_t begin = std::max<int64_t>(0, -first);
    const int64_t end = std::min(pass.taps, source - first);
    const AxisPart one = begin < end ? AxisPart{i, 1, begin, end - begin} : AxisPart{i, 1, 0, 0};
    if (!parts.empty() && parts.back().tap == one.tap && parts.back().taps == one.taps) {
      ++parts.back().count;
    } else {
      parts.push_back(one);
    }
  }
  return parts;
}

}  // namespace runnel::fp32
