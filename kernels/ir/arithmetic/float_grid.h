#pragma once

// Floats of few bits among FP32 values, and sums of them, as kernels/ir/op_traits.inc says of
// kSmallFloat, the kChunked codes and kRoundedUpdate. Backends agree with it to the bit. Pure
// functions; any thread.
//
// Of E bits of exponent, with the bias 2^(E-1) - 1, and M of mantissa: normal numbers, below them
// multiples of their least step. The largest exponent field is no number's. 5, 2 are e5m2.

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/ir/program.h"

namespace runnel {

// What rounding to a format needs.
struct FloatBounds {
  int dropped = 0;  // bits of an FP32 mantissa
  float least_normal = 0, largest = 0;
  float rounder = 0;  // adding it rounds what is below least_normal to a multiple of the least step
};

// As kernels of conversions (proto/base/tensor/small_float.h) round, but for any format and in a form
// that compilers make vectors of.
class FloatGrid {
 public:
  FloatGrid(int exponent_bits, int mantissa_bits)
      : dropped_(23 - mantissa_bits),
        least_step_(std::ldexp(1.0f, 2 - (1 << (exponent_bits - 1)) - mantissa_bits)),
        least_normal_(std::ldexp(least_step_, mantissa_bits)),
        largest_(std::ldexp(2 - std::ldexp(1.0f, -mantissa_bits), (1 << (exponent_bits - 1)) - 1)),
        rounder_(std::ldexp(least_step_, 23) * 1.5f) {}
  explicit FloatGrid(const GridRule& grid) : FloatGrid(grid.exponent_bits, grid.bits) {}

  float largest() const { return largest_; }
  float least_step() const { return least_step_; }
  FloatBounds bounds() const { return {dropped_, least_normal_, largest_, rounder_}; }

  // The nearest, halves to even. NaN stays NaN.
  float Nearest(float x) const {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t half = (1u << (dropped_ - 1)) - 1 + (bits >> dropped_ & 1);
    const float normal = std::bit_cast<float>((bits + half) >> dropped_ << dropped_);
    // Adding it rounds what is below least_normal_ to a multiple of least_step_.
    const float small = (x + rounder_) - rounder_;
    const float magnitude = std::fabs(x);
    const float rounded = magnitude < least_normal_ ? small : normal;
    const float held = std::fabs(rounded) > largest_ ? std::copysign(largest_, x) : rounded;
    return magnitude <= largest_ ? std::copysign(held, x)
                                 : (x != x ? x : std::copysign(largest_, x));
  }

  // The neighbour above |x| for draws u in [0, 1) of at least 1 less x's share of the way to it.
  float ByDraw(float x, float u) const {
    const float magnitude = std::fabs(x);
    if (!(magnitude < largest_)) return x != x ? x : std::copysign(largest_, x);
    const uint32_t exponent_field = std::bit_cast<uint32_t>(magnitude) >> 23 << 23;
    const float power = std::bit_cast<float>(exponent_field);
    const float step = magnitude < least_normal_ ? least_step_ : std::ldexp(power, dropped_ - 23);
    const float steps = magnitude / step, below = std::floor(steps);
    const float value = (steps - below >= 1 - u ? below + 1 : below) * step;
    return std::copysign(value, x);
  }

 private:
  int dropped_;  // bits of an FP32 mantissa
  float least_step_, least_normal_, largest_, rounder_;
};

// A sum of products in chunks: each addition, within a chunk and of the chunks' sums, is one of FP32
// whose result is rounded.
class ChunkSum {
 public:
  ChunkSum(const FloatGrid& format, int64_t chunk) : format_(format), chunk_(chunk) {}

  void Add(float a, float b) {
    partial_ = format_.Nearest(partial_ + a * b);
    if (++terms_ == chunk_) Close();
  }
  float Sum() {
    if (terms_ > 0) Close();
    return total_;
  }

 private:
  void Close() {
    total_ = format_.Nearest(total_ + partial_);
    partial_ = 0;
    terms_ = 0;
  }

  const FloatGrid& format_;
  const int64_t chunk_;
  float partial_ = 0, total_ = 0;
  int64_t terms_ = 0;
};

}  // namespace runnel
