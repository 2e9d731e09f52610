#pragma once

// Weight-gradient of one group: dw[oc][tap][ic] = sum over pixels of dy[pixel][oc] * x[pixel moved
// by tap][ic], a product of matrices whose reduction goes over the pixels.
//
// Both operands are packed [pixel][k_group images]: k_group images side by side are one step, so a
// tap moves whole steps, x is packed once for all taps, and pixels that would meet the padding are
// left out. Where that does not fit (few images, few channels) or is not needed (1x1), every pixel
// is an image of one pixel and x is unfolded first (im2col).

#include <cstdint>

#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/ir/conv_shape.h"

namespace runnel::cpu {

// The problem of one group; the pixel steps are elements from a pixel to the next.
struct WeightGradientProblem {
  ConvShape shape;  // of one group: in_c and out_c are the group's
  int64_t x_pixel = 1, dy_pixel = 1;
};

struct WeightGradientOperands {
  const int8_t* dy = nullptr;
  const int8_t* x = nullptr;
  int32_t* dw = nullptr;  // or null with wide
  int64_t* wide = nullptr;
  bool adds = false;  // to what is there, in place of overwriting it
  // The rounded sums in place of dw and wide. Needs max_lanes.
  const Int8TileRounding* rounding = nullptr;
  int8_t* rounded = nullptr;
  uint32_t* max_lanes = nullptr;  // kMaxLanes, raised to |dw|; or null. Not with wide
};

// Place of the partial sums of all output channels: in dw; beside it, for wide; nowhere except for
// reductions over several chunks, where they are rounded.
enum class PartialSums : uint8_t { kInPlace, kWide, kRounded };
int64_t WeightGradientWorkspaceBytes(const Int8Kernels& kernels,
                                     const WeightGradientProblem& problem, PartialSums partial,
                                     int threads);
void RunWeightGradient(const Int8Context& context, const WeightGradientProblem& problem,
                       const WeightGradientOperands& operands);

}  // namespace runnel::cpu
