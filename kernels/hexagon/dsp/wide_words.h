#pragma once

// Vectors of 64-bit integers as two vectors of words, for sums and products that 32 bits do not
// hold.

#include "kernels/hexagon/dsp/hvx.h"

namespace runnel::hexagon {

struct Wide {
  Vector low;   // unsigned
  Vector high;  // signed
};

RUNNEL_INLINE Wide SplatWide(int64_t value) {
  return {Splat(static_cast<int32_t>(value)), Splat(static_cast<int32_t>(value >> 32))};
}
RUNNEL_INLINE Wide WideOf(Vector words) { return {words, Q6_Vw_vasr_VwR(words, 31)}; }

RUNNEL_INLINE Wide AddWide(const Wide& a, const Wide& b) {
  const Vector low = Q6_Vw_vadd_VwVw(a.low, b.low);
  const Vector carry = Q6_V_vmux_QVV(Q6_Q_vcmp_gt_VuwVuw(a.low, low), Splat(1), Q6_V_vzero());
  return {low, Q6_Vw_vadd_VwVw(Q6_Vw_vadd_VwVw(a.high, b.high), carry)};
}

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

// What rounding gives at most: beyond every clamp of codes.
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
