// Quantising, rescaling and the element-wise operators.

#include "kernels/backends/hexagon/dsp/hvx.h"
#include "kernels/backends/hexagon/dsp/machine.h"
#include "kernels/backends/hexagon/dsp/product/rounded_sums.h"

namespace runnel::hexagon {
namespace {

// Calls body(first element, elements) on pieces of at most 128.
template <typename Body>
RUNNEL_INLINE void ForEachPiece(uint32_t elements, const Body& body) {
  for (uint32_t i = 0; i < elements; i += kVectorBytes) {
    body(i, static_cast<int>(Min<uint32_t>(kVectorBytes, elements - i)));
  }
}

// |x| as bits: NaN counts as 0, an infinite value as the largest float.
RUNNEL_INLINE Vector MagnitudeBits(Vector floats) {
  const Vector bits = Q6_V_vand_VV(floats, Splat(0x7fffffff));
  const Predicate nan = Q6_Q_vcmp_gt_VwVw(bits, Splat(0x7f800000));
  return Q6_V_vmux_QVV(nan, Q6_V_vzero(), Q6_Vw_vmin_VwVw(bits, Splat(0x7f7fffff)));
}

// |x| = mantissa * 2^(exponent - 150).
struct FloatParts {
  Vector mantissa;
  Vector exponent;
};
RUNNEL_INLINE FloatParts PartsOf(Vector magnitude) {
  const Vector biased = Q6_Vuw_vlsr_VuwR(magnitude, 23);
  const Vector fraction = Q6_V_vand_VV(magnitude, Splat(0x7fffff));
  const Predicate subnormal = Q6_Q_vcmp_eq_VwVw(biased, Q6_V_vzero());
  return {Q6_V_vmux_QVV(subnormal, fraction, Q6_V_vor_VV(fraction, Splat(0x800000))),
          Q6_Vw_vmax_VwVw(biased, Splat(1))};
}

// round(127 * |x| / M), halves up, in 0..127: a division bit by bit, exact as that in double is
// (the quotient of numbers of 31 and 24 bits is never within half a step of a double of a half
// without being one). 127 times a mantissa of 24 bits fits into 31.
RUNNEL_INLINE Vector FullRange(const FloatParts& x, int32_t largest_mantissa,
                               int32_t largest_exponent) {
  const Vector divisor = Splat(largest_mantissa);
  Vector rest = Q6_Vw_vsub_VwVw(Q6_Vw_vasl_VwR(x.mantissa, 7), x.mantissa);
  // From 2^9 on the quotient is below a half.
  const Vector below =
      Q6_Vw_vmin_VwVw(Q6_Vw_vsub_VwVw(Splat(largest_exponent), x.exponent), Splat(9));
  Vector quotient = Q6_V_vzero();
  for (int bit = 6; bit >= 0; --bit) {
    const Vector shift = Q6_Vw_vadd_VwVw(below, Splat(bit));
    const Predicate less = Q6_Q_vcmp_gt_VuwVuw(divisor, Q6_Vw_vlsr_VwVw(rest, shift));
    const Vector taken = Q6_V_vmux_QVV(less, Q6_V_vzero(), Q6_Vw_vasl_VwVw(divisor, shift));
    rest = Q6_Vw_vsub_VwVw(rest, taken);
    quotient = Q6_Vw_vadd_VwVw(quotient, Q6_V_vmux_QVV(less, Q6_V_vzero(), Splat(1 << bit)));
  }
  // The rest is below the divisor: rounded up if it is at least the rest of the divisor.
  const Vector scaled = Q6_Vw_vasl_VwVw(divisor, below);
  const Predicate down = Q6_Q_vcmp_gt_VuwVuw(Q6_Vw_vsub_VwVw(scaled, rest), rest);
  quotient = Q6_Vw_vadd_VwVw(quotient, Q6_V_vmux_QVV(down, Q6_V_vzero(), Splat(1)));
  return Q6_V_vmux_QVV(Q6_Q_vcmp_gt_VwVw(below, Splat(8)), Q6_V_vzero(), quotient);
}

// round(|x| * 2^-exponent), halves up.
RUNNEL_INLINE Vector PowerOfTwo(const FloatParts& x, int32_t exponent) {
  // Bits to drop: -7 (a subnormal M) and more.
  const Vector drop =
      Q6_Vw_vmin_VwVw(Q6_Vw_vsub_VwVw(Splat(exponent + 150), x.exponent), Splat(26));
  const Vector half_drop = Q6_Vw_vmax_VwVw(Q6_Vw_vsub_VwVw(drop, Splat(1)), Q6_V_vzero());
  const Vector half = Q6_V_vand_VV(Q6_Vw_vlsr_VwVw(x.mantissa, half_drop), Splat(1));
  const Predicate drops = Q6_Q_vcmp_gt_VwVw(drop, Q6_V_vzero());
  const Vector kept = Q6_Vw_vlsr_VwVw(x.mantissa, drop);  // shifts left for negative amounts
  return Q6_Vw_vadd_VwVw(kept, Q6_V_vmux_QVV(drops, half, Q6_V_vzero()));
}

}  // namespace

DspStatus Copy(Machine& machine, const DspOp& op) {
  const uint8_t* from = machine.data<uint8_t>(op.in[0]);
  uint8_t* to = machine.data<uint8_t>(op.out[0]);
  ForEachPiece(op.in[0].elements * op.in[0].bytes,
               [&](uint32_t i, int n) { StoreBytes(to + i, Load(from + i), n); });
  if (op.in[0].tail != 0) machine.tail(op.out[0]) = machine.tail(op.in[0]);
  return DspStatus::kOk;
}

DspStatus Quantize(Machine& machine, const DspOp& op) {
  const int32_t* x = machine.data<int32_t>(op.in[0]);
  int8_t* y = machine.data<int8_t>(op.out[0]);
  const uint32_t elements = op.out[0].elements;
  MaxWords largest;
  ForEachPiece(elements, [&](uint32_t i, int n) {
    Words words = LoadWords(x + i);
    for (Vector& v : words.v) v = MagnitudeBits(v);
    largest.See(words, n);
  });
  const int32_t bits = largest.Result();
  const int32_t biased = Max(bits >> 23, 1);
  const int32_t mantissa = (bits >> 23) == 0 ? bits : ((bits & 0x7fffff) | 0x800000);
  const int32_t exponent = bits == 0 ? 0 : BitsOf(mantissa) + biased - 150 - 7;
  ForEachPiece(elements, [&](uint32_t i, int n) {
    Words words = LoadWords(x + i);
    for (Vector& v : words.v) {
      const Predicate negative = Q6_Q_vcmp_gt_VwVw(Q6_V_vzero(), v);
      const FloatParts parts = PartsOf(MagnitudeBits(v));
      Vector rounded = Q6_V_vzero();
      if (bits != 0) {
        rounded = (op.flags & kFlagPowerOfTwo) != 0 ? PowerOfTwo(parts, exponent)
                                                    : FullRange(parts, mantissa, biased);
      }
      v = Q6_V_vmux_QVV(negative, Q6_Vw_vsub_VwVw(Q6_V_vzero(), rounded), rounded);
    }
    StoreBytes(y + i, MantissasOf(words), n);
  });
  machine.SetTail(op.out[0], exponent);
  return DspStatus::kOk;
}

namespace {

// round(words, first element) returns the rounded words.
template <typename Round>
RUNNEL_INLINE void RoundInto(const DspOp& op, const int32_t* sums, const int8_t* mask, int8_t* y,
                             const Round& round) {
  const Vector least = (op.flags & kFlagRelu) != 0 ? Q6_V_vzero() : SplatBytes(-127);
  ForEachPiece(op.out[0].elements, [&](uint32_t i, int n) {
    Vector value = Q6_Vb_vmax_VbVb(MantissasOf(round(LoadWords(sums + i), i)), least);
    if (mask != nullptr) {
      const Predicate keeps = Q6_Q_vcmp_gt_VbVb(Load(mask + i), Q6_V_vzero());
      value = Q6_V_vmux_QVV(keeps, value, Q6_V_vzero());
    }
    StoreBytes(y + i, value, n);
  });
}

}  // namespace

void RoundStored(Machine& machine, const DspOp& op, const int32_t* sums, const DspTensor& mask_of,
                 int shift) {
  const int8_t* mask = mask_of.data != 0 ? machine.data<int8_t>(mask_of) : nullptr;
  int8_t* y = machine.data<int8_t>(op.out[0]);
  if (op.rounding == kRoundPseudoStochastic && shift < 32) {
    const PseudoRounding round(shift);
    return RoundInto(op, sums, mask, y, [&](const Words& words, uint32_t) {
      Words rounded;
      for (int i = 0; i < 4; ++i) rounded.v[i] = round(words.v[i], Q6_Vw_vabs_Vw(words.v[i]));
      return rounded;
    });
  }
  Draws draws(op);
  RoundInto(op, sums, mask, y, [&](const Words& words, uint32_t first) {
    return RoundWords(op, draws, words, shift, first);
  });
}

DspStatus Rescale(Machine& machine, const DspOp& op) {
  const Tail from = machine.tail(op.in[0]);
  const int shift = ShiftOf(op, from.max_abs);
  RoundStored(machine, op, machine.data<int32_t>(op.in[0]), op.in[1], shift);
  machine.SetTail(op.out[0], from.exponent + shift);
  return DspStatus::kOk;
}

DspStatus Relu(Machine& machine, const DspOp& op) {
  const int8_t* x = machine.data<int8_t>(op.in[0]);
  int8_t* y = machine.data<int8_t>(op.out[0]);
  const int32_t exponent = machine.tail(op.in[0]).exponent;
  ForEachPiece(op.out[0].elements, [&](uint32_t i, int n) {
    StoreBytes(y + i, Q6_Vb_vmax_VbVb(Load(x + i), Q6_V_vzero()), n);
  });
  machine.SetTail(op.out[0], exponent);
  return DspStatus::kOk;
}

DspStatus ReluGradient(Machine& machine, const DspOp& op) {
  const int8_t* dy = machine.data<int8_t>(op.in[0]);
  const int8_t* y = machine.data<int8_t>(op.in[1]);
  int8_t* dx = machine.data<int8_t>(op.out[0]);
  const int32_t exponent = machine.tail(op.in[0]).exponent;
  ForEachPiece(op.out[0].elements, [&](uint32_t i, int n) {
    const Predicate keeps = Q6_Q_vcmp_gt_VbVb(Load(y + i), Q6_V_vzero());
    StoreBytes(dx + i, Q6_V_vmux_QVV(keeps, Load(dy + i), Q6_V_vzero()), n);
  });
  machine.SetTail(op.out[0], exponent);
  return DspStatus::kOk;
}

DspStatus Dropout(Machine& machine, const DspOp& op) {
  const int8_t* x = machine.data<int8_t>(op.in[0]);
  int8_t* y = machine.data<int8_t>(op.out[0]);
  const int32_t exponent = machine.tail(op.in[0]).exponent;
  Draws draws(op);
  for (uint32_t i = 0; i < op.out[0].elements; ++i) {
    y[i] = (draws.Bits(i) >> 8) >= op.threshold ? x[i] : 0;
  }
  machine.SetTail(op.out[0], exponent + op.added_exponent);
  return DspStatus::kOk;
}

namespace {

// An operand of the residual add, turned to the exponent of the sum: `above` is by how much its
// exponent is larger than the other's.
RUNNEL_INLINE Words Aligned(const DspOp& op, Draws& draws, const int8_t* values, int32_t above,
                            uint32_t i) {
  Words words = WordsOfBytes(Load(values + i));
  if (above == 1) {
    for (Vector& v : words.v) v = Q6_Vw_vadd_VwVw(v, v);
  } else if (above < -1) {
    words = RoundWords(op, draws, words, Min(-above, 31), i);
  }
  return words;
}

int32_t LargestOf(const int8_t* values, uint32_t count) {
  MaxBytes largest;
  ForEachPiece(count, [&](uint32_t i, int n) { largest.See(Load(values + i), n); });
  return largest.Result();
}

}  // namespace

DspStatus Add(Machine& machine, const DspOp& op) {
  const int8_t* a = machine.data<int8_t>(op.in[0]);
  const int8_t* b = machine.data<int8_t>(op.in[1]);
  int8_t* y = machine.data<int8_t>(op.out[0]);
  const uint32_t count = op.out[0].elements;
  int32_t e_a = machine.tail(op.in[0]).exponent, e_b = machine.tail(op.in[1]).exponent;
  if (LargestOf(a, count) == 0) e_a = e_b;
  if (LargestOf(b, count) == 0) e_b = e_a;
  const int32_t difference = e_a - e_b;
  Draws draws(op), other_draws(op), sum_draws(op);
  const auto sum = [&](uint32_t i) {
    Words words = Aligned(op, draws, a, difference, i);
    const Words other = Aligned(op, other_draws, b, -difference, i);
    for (int k = 0; k < 4; ++k) words.v[k] = Q6_Vw_vadd_VwVw(words.v[k], other.v[k]);
    return words;
  };
  MaxWords largest;
  ForEachPiece(count, [&](uint32_t i, int n) { largest.See(sum(i), n); });
  const int shift = largest.Result() > 127 ? 2 : 0;
  ForEachPiece(count, [&](uint32_t i, int n) {
    StoreBytes(y + i, MantissasOf(RoundWords(op, sum_draws, sum(i), shift, i)), n);
  });
  const bool doubled = difference == 1 || difference == -1;
  machine.SetTail(op.out[0], (doubled ? Min(e_a, e_b) : Max(e_a, e_b)) + shift);
  return DspStatus::kOk;
}

}  // namespace runnel::hexagon
