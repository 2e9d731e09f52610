#pragma once

// What of a product's values does not depend on the left codes (RightPart): the weights' sums over the
// taps that an output has, and the bias. Outputs with the same taps share it.

#include <cstdint>

#include "kernels/backends/cpu/grids/axis_taps.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"

namespace runnel::cpu {

// The taps of the outputs of a product.
struct OutputTaps {
  AxisTaps h, w;         // rows and columns of the result
  int64_t kernel_w = 1;  // taps of a row
  int64_t taps = 1;
  int64_t terms = 1;  // that an output has of each tap

  int64_t width() const { return static_cast<int64_t>(w.of.size()); }
  int64_t positions() const { return static_cast<int64_t>(h.of.size()) * width(); }
};
// Of the outputs of the forward, or of the input-gradient, of this shape. dilation: of rows, columns.
OutputTaps TapsOfOutputs(const ConvShape& shape, int64_t dilation_h, int64_t dilation_w,
                         bool input_gradient);

class RightParts {
 public:
  // Takes its memory from the call's workspace. `taps` outlives it.
  RightParts(const Call& call, const OutputTaps& taps, int64_t columns);

  // Of `columns` weights from `first` on. tap_sums: of the weights' codes, [tap][column]. bias: of all
  // columns; or null.
  void Fill(const CodeGrid& left, const CodeGrids& weights, int64_t first, const int32_t* tap_sums,
            const float* bias);
  // By position of the result: of all columns.
  const double* const* by_position() const { return by_position_; }

 private:
  const OutputTaps& taps_;
  const int64_t columns_;
  double* parts_;  // by class, [column]
  const double** by_position_;
};

}  // namespace runnel::cpu
