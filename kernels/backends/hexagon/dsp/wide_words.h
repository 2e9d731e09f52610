#pragma once

// Vectors of 64-bit integers as two vectors of words, for sums and products that 32 bits do not
// hold.

#include "kernels/backends/hexagon/dsp/hvx.h"

namespace runnel::hexagon {

struct Wide {
  Vector low;   // unsigned
  Vector high;  // signed
};

RUNNEL_INLINE Wide SplatWide(int64_t value) {
  return {Splat(static_cast<int32_t>(value)), Splat(static_cast<int32_t>(value >> 32))};
}
RUNNEL_INLINE Wide WideOf(Vector words) { return {words, Q6_Vw_vasr_VwR(words, 31)}; }

// a + b; the carry out of the low words goes into the high ones.
RUNNEL_INLINE Wide AddWide(const Wide& a, const Wide& b) {
  Predicate carry;
  const Vector low = __builtin_HEXAGON_V6_vaddcarryo_128B(a.low, b.low, &carry);
  return {low, Q6_Vw_vadd_VwVwQ_carry(a.high, b.high, &carry)};
}
// a + b, and one more in lanes of `one`.
RUNNEL_INLINE Wide AddWide(const Wide& a, const Wide& b, Predicate one) {
  const Vector low = Q6_Vw_vadd_VwVwQ_carry(a.low, b.low, &one);
  return {low, Q6_Vw_vadd_VwVwQ_carry(a.high, b.high, &one)};
}

// 32 values, in order.
RUNNEL_INLINE Wide LoadWide(const int64_t* at) {
  const VectorPair words = Q6_W_vdeal_VVR(Load(at + kVectorWords / 2), Load(at), -4);
  return {Q6_V_lo_W(words), Q6_V_hi_W(words)};
}
// The first `count` of them.
RUNNEL_INLINE void StoreWide(int64_t* at, const Wide& value, int count = kVectorWords) {
  const VectorPair words = Q6_W_vshuff_VVR(value.high, value.low, -4);
  StoreBytes(at, Q6_V_lo_W(words), count * 8);
  StoreBytes(at + kVectorWords / 2, Q6_V_hi_W(words), count * 8 - kVectorBytes);
}

RUNNEL_INLINE Predicate IsNotZero(Vector words) { return Q6_Q_vcmp_gt_VuwVuw(words, Q6_V_vzero()); }

// The largest |value| seen; none is -2^63.
class MaxWide {
 public:
  RUNNEL_INLINE void See(const Wide& value) {
    const Vector zero = Q6_V_vzero(), sign = Q6_Vw_vasr_VwR(value.high, 31);
    const Wide flipped = {Q6_V_vxor_VV(value.low, sign), Q6_V_vxor_VV(value.high, sign)};
    const Wide magnitude = AddWide(flipped, {zero, zero}, Q6_Q_vcmp_gt_VwVw(zero, value.high));
    Predicate stays;  // no borrow
    __builtin_HEXAGON_V6_vsubcarryo_128B(max_.low, magnitude.low, &stays);
    Q6_Vw_vsub_VwVwQ_carry(max_.high, magnitude.high, &stays);
    max_.low = Q6_V_vmux_QVV(stays, max_.low, magnitude.low);
    max_.high = Q6_V_vmux_QVV(stays, max_.high, magnitude.high);
  }
  // The first `count` lanes.
  RUNNEL_INLINE void See(const Wide& value, int count) {
    See({KeepBytes(value.low, count * 4), KeepBytes(value.high, count * 4)});
  }
  int64_t Result() const {
    alignas(kVectorBytes) int64_t lanes[kVectorWords];
    StoreWide(lanes, max_);
    int64_t largest = 0;
    for (int64_t lane : lanes) largest = Max(largest, lane);
    return largest;
  }

 private:
  Wide max_ = {Q6_V_vzero(), Q6_V_vzero()};
};

// Within +-(2^31 - 1).
RUNNEL_INLINE Vector SaturateWide(const Wide& a) {
  const Predicate fits = Q6_Q_vcmp_eq_VwVw(a.high, Q6_Vw_vasr_VwR(a.low, 31));
  const Predicate negative = Q6_Q_vcmp_gt_VwVw(Q6_V_vzero(), a.high);
  const Vector bound = Q6_V_vmux_QVV(negative, Splat(-INT32_MAX), Splat(INT32_MAX));
  return Q6_Vw_vmax_VwVw(Q6_V_vmux_QVV(fits, a.low, bound), Splat(-INT32_MAX));
}

// words * factor, 0 <= factor < 2^31.
RUNNEL_INLINE Wide MultiplyWide(Vector words, int32_t factor) {
  const Vector factors = Splat(factor);
  const VectorPair product = Q6_W_vmpyoacc_WVwVh(Q6_W_vmpye_VwVuh(words, factors), words, factors);
  return {Q6_V_lo_W(product), Q6_V_hi_W(product)};
}

// Largest result of rounding: beyond every clamp of codes.
inline constexpr int32_t kBeyondCodes = 1024;

// a * 2^-shift, halves away from zero, |.| at most kBeyondCodes. |a| < 2^62, shift 1..62.
RUNNEL_INLINE Vector RoundHalfAwayWide(const Wide& a, int shift) {
  const Predicate negative = Q6_Q_vcmp_gt_VwVw(Q6_V_vzero(), a.high);
  const Vector ones = Splat(-1);
  const Wide flipped =
      AddWide({Q6_V_vxor_VV(a.low, ones), Q6_V_vxor_VV(a.high, ones)}, SplatWide(1));
  Wide magnitude = {Q6_V_vmux_QVV(negative, flipped.low, a.low),
                    Q6_V_vmux_QVV(negative, flipped.high, a.high)};
  magnitude = AddWide(magnitude, SplatWide(int64_t{1} << (shift - 1)));
  Vector quotient;
  if (shift >= 32) {
    quotient = Q6_Vuw_vlsr_VuwR(magnitude.high, shift - 32);
  } else {
    // From this high word on the quotient is kBeyondCodes or more.
    const int32_t beyond = shift <= 22 ? 1 : 1 << (shift - 22);
    const Vector low = Q6_V_vor_VV(Q6_Vuw_vlsr_VuwR(magnitude.low, shift),
                                   Q6_Vw_vasl_VwR(magnitude.high, 32 - shift));
    const Predicate large = Q6_Q_vcmp_gt_VwVw(magnitude.high, Splat(beyond - 1));
    quotient = Q6_V_vmux_QVV(large, Splat(kBeyondCodes), low);
  }
  const Predicate beyond = Q6_Q_vcmp_gt_VuwVuw(quotient, Splat(kBeyondCodes));
  quotient = Q6_V_vmux_QVV(beyond, Splat(kBeyondCodes), quotient);
  return Q6_V_vmux_QVV(negative, Q6_Vw_vsub_VwVw(Q6_V_vzero(), quotient), quotient);
}

}  // namespace runnel::hexagon
