#pragma once

// Convolutions as matrix products without an im2col copy: a row of A is a pixel's window, read as
// runs of contiguous floats from a (zero-padded where necessary) channels-last image; forward and
// input-gradient are the same walk over other axes.

#include <cstdint>
#include <functional>

#include "kernels/cpu/call.h"
#include "kernels/cpu/fp32/conv_axes.h"
#include "kernels/cpu/fp32/packing.h"

namespace runnel::fp32 {

using cpu::Call;
using cpu::Image;

// target = source convolved with weights, both channels-last.
struct ConvProduct {
  Image source, target;
  Axis h, w;
  int64_t groups = 1;
  int64_t kernel_w = 1;   // for positions in the weight
  int64_t tap_count = 1;  // of the weight
  bool backward = false;  // weight (source channels, target channels / groups, taps), else
                          // (target channels, source channels / groups, taps)
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;  // by target channel, or null
  float* y = nullptr;

  // Called around each block of the work, from any thread, with pixels that nobody else has:
  // those of the source that are about to be read, and those of the target that are done. Blocks
  // are a function of the shapes alone.
  std::function<void(int64_t pixel, int64_t count)> before;
  std::function<void(int64_t pixel, int64_t count)> after;
};

// Pixels of the target in a block: a multiple of kMomentRows, or of an image's.
void RunConvProduct(const Call& call, const ConvProduct& conv);

// Copies images [0, count) into zero-padded ones of (h.high - h.low) x (w.high - w.low) pixels,
// whose padding is zero already.
void PadImages(const float* x, int64_t count, const Image& image, const Axis& h, const Axis& w,
               float* padded);

}  // namespace runnel::fp32
