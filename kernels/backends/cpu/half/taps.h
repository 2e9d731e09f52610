#pragma once

// Which pixels meet in a convolution of halves, and their values gathered as rows of FP32.

#include <cstdint>
#include <vector>

#include "kernels/backends/cpu/half/half_kernels.h"

namespace runnel::half {

// A convolution; a linear layer is one of a single position.
struct Conv {
  Image x, y;
  Window window;
  int64_t groups = 1;

  Conv(const OpSpec& op, const Shape& x_shape, const Shape& y_shape);
  int64_t taps() const { return window.kh * window.kw; }
  int64_t in() const { return x.c / groups; }   // channels of a group
  int64_t out() const { return y.c / groups; }  // likewise
  bool is_depthwise() const { return groups > 1 && in() == 1 && out() == 1; }
};

// Pixels of a target that the same taps reach: of a forward all of y, of an input-gradient those of
// x whose places have the same rest by the strides.
struct TargetSet {
  std::vector<int64_t> taps;
  int64_t h = 0, w = 0;  // the first row and column
  int64_t step_h = 1, step_w = 1;
  int64_t rows = 0, columns = 0;

  int64_t pixels(const Image& image) const { return image.n * rows * columns; }
};

// One direction of a convolution: each target pixel is a sum over taps of source pixels.
class Walk {
 public:
  // backward: from y to x, else from x to y.
  Walk(const Conv& conv, bool backward);

  const Image& source() const { return backward_ ? conv_.y : conv_.x; }
  const Image& target() const { return backward_ ? conv_.x : conv_.y; }
  const std::vector<TargetSet>& sets() const { return sets_; }
  // The i-th pixel of a set, in the target.
  int64_t TargetOf(const TargetSet& set, int64_t i) const;
  // Widens what the set's taps meet from target pixel `pixel` on, `channels` from `channel` on of
  // each source pixel; 0 in the padding.
  void Gather(const TargetSet& set, int64_t pixel, int64_t channel, int64_t channels, bool pairs,
              const Conversions& conversions, const uint16_t* x, float* row) const;

 private:
  // -1: padding.
  int64_t SourceOf(int64_t n, int64_t h, int64_t w, int64_t tap) const;

  const Conv& conv_;
  const bool backward_;
  std::vector<TargetSet> sets_;
};

}  // namespace runnel::half
