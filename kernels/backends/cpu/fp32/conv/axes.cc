#include "kernels/backends/cpu/fp32/conv/axes.h"

#include <algorithm>
#include <numeric>

namespace runnel::fp32 {

Axis ForwardAxis(const AxisWindow& w) {
  Axis axis;
  axis.source = w.in;
  axis.target = w.out;
  axis.low = -w.padding;
  axis.high = (w.out - 1) * w.stride - w.padding + (w.kernel - 1) * w.dilation + 1;
  axis.passes.push_back({.count = w.out,
                         .source_begin = -w.padding,
                         .source_step = w.stride,
                         .taps = w.kernel,
                         .source_gap = w.dilation});
  return axis;
}

Axis GradientAxis(const AxisWindow& w) {
  Axis axis;
  axis.source = w.out;
  axis.target = w.in;
  // Kernel positions whose places have the same rest by the stride are `step` apart.
  const int64_t common = std::gcd(w.stride, w.dilation);
  const int64_t step = w.stride / common;
  bool any = false;
  for (int64_t rest = 0; rest < w.stride; ++rest) {
    AxisPass pass;
    pass.target_begin = ((rest - w.padding) % w.stride + w.stride) % w.stride;
    pass.target_step = w.stride;
    if (pass.target_begin >= w.in) continue;
    pass.count = (w.in - pass.target_begin + w.stride - 1) / w.stride;
    int64_t first = 0;  // the first kernel position of this rest
    while (first < step && first * w.dilation % w.stride != rest) ++first;
    const bool meets = first < std::min(step, w.kernel);
    pass.taps = meets ? (w.kernel - first + step - 1) / step : 0;
    // Target t meets kernel position k = first + step * j at source (t + padding - k * dilation) /
    // stride.
    pass.source_gap = w.dilation / common;
    pass.tap_begin = first + step * (pass.taps - 1);
    pass.tap_step = -step;
    if (pass.taps > 0) {
      pass.source_begin = (pass.target_begin + w.padding - pass.tap_begin * w.dilation) / w.stride;
      const int64_t high = pass.source_begin + pass.count + (pass.taps - 1) * pass.source_gap;
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
    const int64_t gap = pass.source_gap;
    const int64_t begin = first >= 0 ? 0 : (-first + gap - 1) / gap;
    const int64_t end = first >= source ? 0 : std::min(pass.taps, (source - first + gap - 1) / gap);
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
