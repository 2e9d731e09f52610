#pragma once

// Shapes of products that other projects test (the Arm Compute Library's SmallGEMMLowpDataset and
// SmallConvolutionLayerDataset, the special values of OpenCL's conformance tests): strides, kernels
// and paddings that differ by axis, primes, groups. Paddings that differ by side
// (left, right) are in the random cases.

#include <cstdint>
#include <iterator>

#include "proto/base/model/model_spec.h"

namespace runnel {

// Seeds from here on make the case of row seed - kFirstNamedSeed; below it random ones.
inline constexpr uint64_t kFirstNamedSeed = 1u << 30;

struct NamedConv {
  int64_t batch, channels, h, w;
  int64_t kernel_h, kernel_w, out_channels;
  int64_t stride_h = 1, stride_w = 1, padding_h = 0, padding_w = 0, groups = 1;
};
inline constexpr NamedConv kNamedConvs[] = {
    {1, 5, 27, 23, 3, 3, 2, 1, 2},
    {1, 7, 27, 33, 5, 5, 3, 2, 3, 0, 1},
    {1, 2, 31, 17, 5, 5, 4, 2, 1, 1, 1},
    {1, 1, 3, 3, 2, 2, 5},
    {4, 5, 27, 23, 3, 3, 21, 1, 2},
    {4, 7, 27, 33, 5, 5, 16},
    {4, 2, 31, 17, 5, 5, 19},
    {1, 1024, 1, 1, 1, 1, 1001},
    {1, 2, 5, 1, 3, 1, 3, 1, 1, 2, 0},
    {1, 3, 27, 33, 7, 5, 4, 2, 3, 1, 1},  // 5x7, with one padding an axis
    {1, 3, 27, 33, 7, 5, 4, 2, 3, 0, 2},
    {2, 3, 4, 5, 4, 4, 1},
    {1, 4, 11, 7, 3, 3, 8, 1, 2, 1, 0, 2},
    {2, 4, 11, 7, 3, 3, 8, 2, 1, 0, 1, 2},
    {3, 4, 11, 7, 3, 2, 6, 1, 1, 1, 1, 2},
    {4, 8, 7, 11, 2, 3, 12, 2, 1, 1, 0, 4},
    {5, 8, 7, 11, 3, 3, 8, 1, 2, 0, 1, 4},
    {1, 8, 7, 11, 1, 3, 4, 1, 1, 0, 1, 4},
    {2, 12, 5, 13, 3, 1, 8, 1, 1, 1, 0, 4},
    {3, 8, 5, 13, 5, 3, 4, 1, 2, 2, 1, 4},
    {4, 6, 13, 5, 3, 3, 10, 3, 1, 1, 1, 2},
    {5, 6, 13, 5, 3, 5, 2, 1, 1, 1, 2, 2},
    {2, 64, 8, 8, 3, 3, 32, 1, 1, 1, 1},  // aligned operands, deep sums
    {2, 3, 5, 5, 1, 1, 4, 2, 2, 2, 2},    // one tap, as many positions as pixels, each at another
    {3, 4, 1, 1, 1, 1, 5, 2, 2, 1, 1},    // windows that read no pixel
};

// Writes the operator and x, gives y.
inline Shape TakeNamedConv(const NamedConv& named, OpSpec& op, Shape& x) {
  op.kind = OpKind::kConv;
  op.kernel = {named.kernel_h, named.kernel_w};
  op.stride = {named.stride_h, named.stride_w};
  op.padding = {named.padding_h, named.padding_w};
  op.groups = named.groups;
  op.out_channels = named.out_channels;
  x = {named.batch, named.channels, named.h, named.w};
  const auto positions = [&](int axis) {
    return (x[axis + 2] + 2 * op.padding[axis] - op.kernel[axis]) / op.stride[axis] + 1;
  };
  return {named.batch, op.out_channels, positions(0), positions(1)};
}

// y (rows, columns) = x (rows, depth) * w (columns, depth).
struct NamedProduct {
  int64_t rows, columns, depth;
};
inline constexpr NamedProduct kNamedProducts[] = {
    {21, 2, 43},
    {21, 13, 33},
    {31, 3, 72},
    {52, 13, 33},
    {52, 26, 33},
    {31, 27, 23},
    {38, 43, 21},
    {32, 72, 17},
    {8, 8, 8},
    {16, 16, 64},
    {64, 64, 128},
    // Of operands from the special values alone, all pairs of them, four to a sum.
    {49, 49, 4},
};

// The number of rows for convolutions and for linear layers.
inline constexpr uint64_t kNamedConvCount = std::size(kNamedConvs);
inline constexpr uint64_t kNamedProductCount = std::size(kNamedProducts);

// Extremes of a mantissa, which is never -128, and what lies beside and halfway.
inline constexpr int8_t kSpecialMantissas[] = {-127, -126, -63, 0, 63, 126, 127};

}  // namespace runnel
