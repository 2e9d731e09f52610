#pragma once

// What the rows for arm64's Advanced SIMD share: all loops but the products of a depthwise
// convolution. Only the instructions that every arm64 processor has.
// Included by the files of instruction sets only: all static.

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstdint>

#include "kernels/backends/cpu/codes/code_loops.h"

namespace runnel::cpu {
namespace {

constexpr int kVectorBytes = 16;
void Requantize(const CodeColumns& columns, const SumRows& rows);
#include "kernels/backends/cpu/codes/rows/code_loops_body.inc"

// Codes of columns that round once: the low half of each float beyond 2^23, whose last bit is a
// unit.
struct OnceCoder {
  explicit OnceCoder(const CodeColumns& columns)
      : whole(vdupq_n_f32(12582912.0f + static_cast<float>(columns.zero))),  // 1.5 * 2^23
        lowest(vdupq_n_s8(static_cast<int8_t>(columns.lowest))),
        highest(vdupq_n_s8(static_cast<int8_t>(columns.highest))) {}

  int16x8_t Words(int32x4_t left, int32x4_t right, float32x4_t left_scale,
                  float32x4_t right_scale) const {
    const float32x4_t a = vfmaq_f32(whole, vcvtq_f32_s32(left), left_scale);
    const float32x4_t b = vfmaq_f32(whole, vcvtq_f32_s32(right), right_scale);
    return vuzp1q_s16(vreinterpretq_s16_f32(a), vreinterpretq_s16_f32(b));
  }
  int8x16_t Clamp(int8x16_t codes) const { return vminq_s8(vmaxq_s8(codes, lowest), highest); }

  float32x4_t whole;
  int8x16_t lowest, highest;
};

// What four neighbouring columns need where products have 64 bits.
struct Four {
  Four(const CodeColumns& columns, int64_t c)
      : offset(vld1q_s32(columns.offsets + c)),
        limit(vreinterpretq_u32_s32(vld1q_s32(columns.limits + c))),
        multiplier(vreinterpretq_u32_s32(vld1q_s32(columns.multipliers + c))),
        weight_zero(columns.weight_zeros == nullptr ? vdupq_n_s32(0)
                                                    : vld1q_s32(columns.weight_zeros + c)) {
    const int32x4_t right = vnegq_s32(vld1q_s32(columns.shifts + c));
    low_shift = vmovl_s32(vget_low_s32(right));
    high_shift = vmovl_high_s32(right);
  }

  int32x4_t Round(int32x4_t sum) const {
    const uint32x4_t size = vminq_u32(vreinterpretq_u32_s32(vabsq_s32(sum)), limit);
    const uint64x2_t low = vmull_u32(vget_low_u32(size), vget_low_u32(multiplier));
    const uint64x2_t high = vmull_high_u32(size, multiplier);
    const uint32x4_t both =
        vmovn_high_u64(vmovn_u64(vrshlq_u64(low, low_shift)), vrshlq_u64(high, high_shift));
    const int32x4_t sign = vshrq_n_s32(sum, 31);
    return vsubq_s32(veorq_s32(vreinterpretq_s32_u32(both), sign), sign);
  }

  int32x4_t offset;
  uint32x4_t limit, multiplier;
  int32x4_t weight_zero;
  int64x2_t low_shift, high_shift;  // negative: to the right
};

inline int16x4_t CodesOfFour(const CodeColumns& columns, const Four& four, int32x4_t sum,
                             int32_t row_sum) {
  sum = vaddq_s32(sum, four.offset);
  sum = vmlsq_s32(sum, four.weight_zero, vdupq_n_s32(row_sum));
  int32x4_t code = vaddq_s32(four.Round(sum), vdupq_n_s32(columns.zero));
  code = vmaxq_s32(code, vdupq_n_s32(columns.lowest));
  return vmovn_s32(vminq_s32(code, vdupq_n_s32(columns.highest)));
}

// How many columns are done: all whole sixteens.
inline int64_t RequantizeOnce(const CodeColumns& columns, const SumRows& rows) {
  const OnceCoder coder(columns);
  int64_t i = 0;
  for (; i + 16 <= rows.count; i += 16) {
    int32x4_t offset[4];
    float32x4_t scale[4];
    for (int q = 0; q < 4; ++q) {
      offset[q] = vld1q_s32(columns.offsets + rows.first + i + 4 * q);
      scale[q] = vld1q_f32(columns.scales + rows.first + i + 4 * q);
    }
    for (int r = 0; r < rows.rows; ++r) {
      int32x4_t sum[4];
      for (int q = 0; q < 4; ++q)
        sum[q] = vaddq_s32(vld1q_s32(rows.sums[r] + i + 4 * q), offset[q]);
      const int8x8_t left = vqmovn_s16(coder.Words(sum[0], sum[1], scale[0], scale[1]));
      const int16x8_t right = coder.Words(sum[2], sum[3], scale[2], scale[3]);
      vst1q_s8(rows.codes[r] + i, coder.Clamp(vqmovn_high_s16(left, right)));
    }
  }
  return i;
}

// From column i on; as far as there are eight.
inline int64_t RequantizeEights(int64_t i, const CodeColumns& columns, const SumRows& rows) {
  for (; i + 8 <= rows.count; i += 8) {
    const Four left(columns, rows.first + i), right(columns, rows.first + i + 4);
    for (int r = 0; r < rows.rows; ++r) {
      const int32_t row_sum = columns.weight_zeros == nullptr ? 0 : rows.row_sums[r];
      const int32_t* sums = rows.sums[r] + i;
      const int16x8_t codes =
          vcombine_s16(CodesOfFour(columns, left, vld1q_s32(sums), row_sum),
                       CodesOfFour(columns, right, vld1q_s32(sums + 4), row_sum));
      vst1_s8(rows.codes[r] + i, vmovn_s16(codes));
    }
  }
  return i;
}

void Requantize(const CodeColumns& columns, const SumRows& rows) {
  const int64_t once = columns.rounds_once ? RequantizeOnce(columns, rows) : 0;
  RequantizeFrom(RequantizeEights(once, columns, rows), columns, rows);
}

// A block of 16 channels of a depthwise convolution, without its products.
template <bool kIsWhole>
struct NeonNineTaps {
  static constexpr int64_t kChannels = 16;
  struct Sums {
    int32x4_t quad[4];
  };

  NeonNineTaps(const CodeColumns& columns, int64_t c, int64_t the_inside)
      : inside(the_inside), coder(columns) {
    for (int q = 0; q < 4; ++q) {
      offset.quad[q] = vld1q_s32(columns.offsets + c + 4 * q);
      scale[q] = vld1q_f32(columns.scales + c + 4 * q);
    }
  }

  int8x16_t LoadRow(const int8_t* from) const {
    if (kIsWhole) return vld1q_s8(from);
    int8_t bytes[kChannels] = {};
    for (int64_t i = 0; i < inside; ++i) bytes[i] = from[i];
    return vld1q_s8(bytes);
  }
  Sums Start() const { return offset; }
  void Store(const Sums& sums, int8_t* codes) const {
    const int16x8_t left = coder.Words(sums.quad[0], sums.quad[1], scale[0], scale[1]);
    const int16x8_t right = coder.Words(sums.quad[2], sums.quad[3], scale[2], scale[3]);
    const int8x16_t stored = coder.Clamp(vqmovn_high_s16(vqmovn_s16(left), right));
    if (kIsWhole) return vst1q_s8(codes, stored);
    int8_t bytes[kChannels];
    vst1q_s8(bytes, stored);
    for (int64_t i = 0; i < inside; ++i) codes[i] = bytes[i];
  }

  int64_t inside;
  OnceCoder coder;
  Sums offset;
  float32x4_t scale[4];
};

}  // namespace
}  // namespace runnel::cpu

#endif
