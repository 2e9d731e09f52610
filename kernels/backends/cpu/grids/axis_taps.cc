#include "kernels/backends/cpu/grids/axis_taps.h"

#include <algorithm>

namespace runnel::cpu {
namespace {

std::vector<AxisTaps::Tap> TapsOfOutput(const AxisShape& shape, int64_t dilation, int64_t output) {
  std::vector<AxisTaps::Tap> taps;
  for (int64_t t = 0; t < shape.kernel; ++t) {
    const int64_t source = output * shape.stride - shape.pad + t * dilation;
    if (source >= 0 && source < shape.in) taps.push_back({source, t});
  }
  return taps;
}

std::vector<AxisTaps::Tap> TapsOfInput(const AxisShape& shape, int64_t dilation, int64_t input) {
  std::vector<AxisTaps::Tap> taps;
  for (int64_t t = 0; t < shape.kernel; ++t) {
    const int64_t at = input + shape.pad - t * dilation;
    if (at >= 0 && at % shape.stride == 0 && at / shape.stride < shape.out)
      taps.push_back({at / shape.stride, t});
  }
  return taps;
}

bool HaveSameTaps(const std::vector<AxisTaps::Tap>& a, const std::vector<AxisTaps::Tap>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.tap == y.tap; });
}

}  // namespace

AxisTaps TapsOfAxis(const AxisShape& shape, int64_t dilation, bool input_gradient) {
  AxisTaps axis;
  const int64_t outputs = input_gradient ? shape.in : shape.out;
  for (int64_t o = 0; o < outputs; ++o) {
    axis.of.push_back(input_gradient ? TapsOfInput(shape, dilation, o)
                                     : TapsOfOutput(shape, dilation, o));
    int64_t c = 0;
    while (c < axis.classes() && !HaveSameTaps(axis.OfClass(c), axis.of.back())) ++c;
    if (c == axis.classes()) axis.first_of_class.push_back(o);
    axis.class_of.push_back(c);
  }
  return axis;
}

}  // namespace runnel::cpu
