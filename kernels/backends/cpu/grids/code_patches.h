#pragma once

// Products whose taps lie apart (dilation), as those of 1x1 convolutions: the sources of each output
// are copied side by side, [group][tap][channel of the group], zeros where the padding is.

#include <cstdint>

#include "kernels/backends/cpu/grids/right_parts.h"

namespace runnel::cpu {

class CodePatches {
 public:
  // taps: of the outputs; outlives it. source_h, source_w: of what they read.
  CodePatches(const OutputTaps& taps, int64_t groups, int64_t source_h, int64_t source_w);

  // The convolution over the patches of so many samples.
  ConvShape Shape(int64_t samples, int64_t out_c) const;
  // As many samples of `batch` as may go at once.
  int64_t SamplesAtOnce(int64_t batch) const;
  // Memory for the patches of so many samples, and what kernels may read behind them.
  int8_t* Take(const Call& call, int64_t samples) const;
  void Fill(const Machine& machine, const int8_t* source, int64_t samples, int8_t* patches) const;
  int64_t source_elements() const { return source_h_ * source_w_ * groups_ * taps_.terms; }

 private:
  int64_t pixel() const { return groups_ * taps_.taps * taps_.terms; }
  int64_t elements() const { return taps_.positions() * pixel(); }
  // All outputs of a row.
  void FillRow(const int8_t* source, int64_t y, int8_t* patches) const;

  const OutputTaps& taps_;
  const int64_t groups_, source_h_, source_w_;
};

}  // namespace runnel::cpu
