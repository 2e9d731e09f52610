#include "kernels/backends/cpu/grids/right_parts.h"

#include <vector>

namespace runnel::cpu {

OutputTaps TapsOfOutputs(const ConvShape& s, int64_t dilation_h, int64_t dilation_w,
                         bool input_gradient) {
  return {.h = TapsOfAxis({s.in_h, s.out_h, s.kernel_h, s.stride_h, s.pad_h}, dilation_h,
                          input_gradient),
          .w = TapsOfAxis({s.in_w, s.out_w, s.kernel_w, s.stride_w, s.pad_w}, dilation_w,
                          input_gradient),
          .kernel_w = s.kernel_w,
          .taps = s.taps(),
          .terms = input_gradient ? s.group_out() : s.group_in()};
}

RightParts::RightParts(const Call& call, const OutputTaps& taps, int64_t columns)
    : taps_(taps),
      columns_(columns),
      parts_(call.Take<double>(taps.h.classes() * taps.w.classes() * columns)),
      by_position_(call.Take<const double*>(taps.positions())) {
  for (int64_t p = 0; p < taps.positions(); ++p)
    by_position_[p] = parts_ + columns * (taps.h.class_of[p / taps.width()] * taps.w.classes() +
                                          taps.w.class_of[p % taps.width()]);
}

void RightParts::Fill(const CodeGrid& left, const CodeGrids& weights, int64_t first,
                      const int32_t* tap_sums, const float* bias) {
  double* parts = parts_;
  for (int64_t y = 0; y < taps_.h.classes(); ++y) {
    for (int64_t x = 0; x < taps_.w.classes(); ++x, parts += columns_) {
      const std::vector<AxisTaps::Tap>&h = taps_.h.OfClass(y), &w = taps_.w.OfClass(x);
      const int64_t terms = static_cast<int64_t>(h.size() * w.size()) * taps_.terms;
      for (int64_t c = 0; c < columns_; ++c) {
        int64_t sum = 0;
        for (const AxisTaps::Tap& row : h) {
          for (const AxisTaps::Tap& column : w)
            sum += tap_sums[(row.tap * taps_.kernel_w + column.tap) * columns_ + c];
        }
        parts[c] = RightPart(left, weights.At(first + c), sum, terms,
                             bias == nullptr ? 0 : bias[first + c]);
      }
    }
  }
}

}  // namespace runnel::cpu
