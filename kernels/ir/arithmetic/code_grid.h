#pragma once

// Products of the codes of grids (kernels/ir/op_traits.inc, kCodes): a value is unit * code + middle,
// so a sum of products of values follows from four sums of integers. Backends agree with it to the
// bit. Pure functions; any thread.

#include <cstdint>
#include <limits>

#include "kernels/ir/arithmetic/affine_grid.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// Codes of more bits are two of 8: code = 256 * upper + lower.
constexpr bool IsWide(int bits) { return bits > 8; }
// What is taken from 0..2^bits - 1 to make a code, -2^(bits - 1) at least. The lower part of a wide
// one is 0..255 less 128.
constexpr int32_t CodeCentre(int bits) { return (1 << (bits - 1)) + (IsWide(bits) ? 128 : 0); }

// -2^(bits - 1)..2^(bits - 1) - 1, less 128 of a wide one. NaN has the least code.
inline int32_t CodeOfAffine(float x, float noise, const AffineGrid& grid, int32_t centre) {
  const float v = (x - grid.low) / grid.scale + noise;
  return static_cast<int32_t>(AffineCode(v >= 0.0f ? v : 0.0f, grid)) - centre;
}
constexpr int8_t UpperCode(int32_t wide) { return static_cast<int8_t>((wide + 128) >> 8); }
constexpr int8_t LowerCode(int32_t wide) {
  return static_cast<int8_t>(wide - 256 * ((wide + 128) >> 8));
}

// Positions of the kernel of weights of this shape, (out, in, kernel...); 1 of a linear layer.
inline int64_t WeightTaps(const Shape& weights) {
  int64_t taps = 1;
  for (int axis = 2; axis < weights.rank(); ++axis) taps *= weights[axis];
  return taps;
}

// value = unit * code + middle.
struct CodeGrid {
  double unit = 1;
  double middle = 0;
};

// float[1 + 2 * count]: bits, then all scales, then all low ends.
constexpr int64_t CodeGridFloats(int64_t count) { return 1 + 2 * count; }
class CodeGrids {
 public:
  CodeGrids(const float* data, int64_t floats) : data_(data), count_((floats - 1) / 2) {}

  int64_t count() const { return count_; }
  int bits() const { return static_cast<int>(data_[0]); }
  bool is_wide() const { return IsWide(bits()); }
  // Of an output channel, or of all.
  CodeGrid At(int64_t channel) const {
    const int64_t i = count_ == 1 ? 0 : channel;
    const double scale = data_[1 + i], low = data_[1 + count_ + i];
    return {scale, low + CodeCentre(bits()) * scale};
  }

 private:
  const float* data_;
  int64_t count_;
};
// has_nan: among the values.
inline void StoreCodeGrid(const AffineGrid& grid, bool has_nan, int64_t i, int64_t count,
                          float* data) {
  data[1 + i] = grid.scale;
  data[1 + count + i] = has_nan ? std::numeric_limits<float>::quiet_NaN() : grid.low;
}

// Of a symmetric grid, whose codes are of 8 bits around 0.
inline void StoreSymmetricGrid(float unit, bool has_nan, float* data) {
  constexpr int kBits = 8;
  data[0] = kBits;
  StoreCodeGrid({.low = -static_cast<float>(CodeCentre(kBits)) * unit, .scale = unit}, has_nan, 0,
                1, data);
}

// Of the terms of a sum: of the products of both codes, of either code, and their number.
struct TermSums {
  int64_t products = 0;
  int64_t left = 0;
  int64_t right = 0;
  int64_t terms = 0;
};
// What of the sum does not depend on the left codes.
inline double RightPart(const CodeGrid& left, const CodeGrid& right, int64_t right_sum,
                        int64_t terms, double bias) {
  return ((left.middle * right.unit) * static_cast<double>(right_sum) +
          (left.middle * right.middle) * static_cast<double>(terms)) +
         bias;
}
// sum of (left.unit * a + left.middle) * (right.unit * b + right.middle), + bias: in double, rounded
// once more.
inline float ValueOfSums(const CodeGrid& left, const CodeGrid& right, const TermSums& sums,
                         double bias) {
  return static_cast<float>(((left.unit * right.unit) * static_cast<double>(sums.products) +
                             (left.unit * right.middle) * static_cast<double>(sums.left)) +
                            RightPart(left, right, sums.right, sums.terms, bias));
}

// The sum of `terms` values with this sum of codes.
inline float SumOfCodes(const CodeGrid& grid, int64_t sum, int64_t terms) {
  return static_cast<float>(grid.unit * static_cast<double>(sum) +
                            grid.middle * static_cast<double>(terms));
}

}  // namespace runnel
