#pragma once

// The rounding rules of integer recipes (kernels/ir/arithmetic/integer_math.h), for one number and for vectors.

#include "kernels/backends/hexagon/dsp/hvx.h"
#include "kernels/backends/hexagon/op_list.h"

namespace runnel::hexagon {

// 0 for max_abs <= 1, else ceil(log2 max_abs).
inline int BitsOf(int64_t max_abs) {
  return max_abs <= 1 ? 0 : 64 - __builtin_clzll(static_cast<uint64_t>(max_abs - 1));
}

inline int8_t Saturate(int64_t value) {
  return static_cast<int8_t>(Max<int64_t>(-127, Min<int64_t>(127, value)));
}

// Philox4x32 with 7 rounds under the operation's key and sequence: word element % 4 of block
// element / 4.
class Draws {
 public:
  explicit Draws(const DspOp& op) : op_(op) {}
  uint32_t Bits(uint32_t element) {
    if (element / 4 != block_ || !drawn_) Draw(element / 4);
    return words_[element % 4];
  }

 private:
  void Draw(uint32_t block) {
    uint32_t c[4] = {block, 0, op_.sequence[0], op_.sequence[1]};
    uint32_t k0 = op_.key[0], k1 = op_.key[1];
    for (int round = 0; round < 7; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
      const uint32_t next[4] = {
          static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
      for (int i = 0; i < 4; ++i) c[i] = next[i];
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; ++i) words_[i] = c[i];
    block_ = block;
    drawn_ = true;
  }

  const DspOp& op_;
  uint32_t block_ = 0;
  bool drawn_ = false;
  uint32_t words_[4] = {};
};

// `value` with `shift` bits fewer, 0..62; `element` keys the draw of stochastic rounding.
inline int64_t RoundOne(const DspOp& op, Draws& draws, int64_t value, int shift, uint32_t element) {
  if (shift == 0) return value;
  const int64_t magnitude = value < 0 ? -value : value;
  const int64_t residue = magnitude & ((int64_t{1} << shift) - 1);
  int64_t quotient = magnitude >> shift;
  if (op.rounding == kRoundPseudoStochastic) {
    const int half = shift / 2;
    const int64_t low = (residue & ((int64_t{1} << half) - 1)) << (shift % 2);
    quotient += (residue >> half) > low ? 1 : 0;
  } else if (op.rounding == kRoundHalfAway) {
    quotient = (magnitude + (int64_t{1} << (shift - 1))) >> shift;
  } else {
    const uint32_t bits = draws.Bits(element);
    const uint64_t draw =
        shift <= 32 ? bits >> (32 - shift) : static_cast<uint64_t>(bits) << (shift - 32);
    quotient += static_cast<uint64_t>(residue) > draw ? 1 : 0;
  }
  return value < 0 ? -quotient : quotient;
}

// Rounds vectors of words, pseudo-stochastically or half away from zero; shift 1..62.
class VectorRounding {
 public:
  VectorRounding(uint32_t rounding, int shift)
      : pseudo_(rounding == kRoundPseudoStochastic), shift_(shift), half_(shift / 2) {
    low_mask_ = Splat(static_cast<int32_t>((uint32_t{1} << half_) - 1));
    mask_ = Splat(shift >= 32 ? -1 : static_cast<int32_t>((uint32_t{1} << shift) - 1));
  }

  RUNNEL_INLINE Vector operator()(Vector words) const {
    const Vector zero = Q6_V_vzero();
    const Predicate negative = Q6_Q_vcmp_gt_VwVw(zero, words);
    const Vector magnitude = Q6_Vw_vabs_Vw(words);
    const Vector quotient = pseudo_ ? Pseudo(magnitude) : HalfAway(magnitude);
    return Q6_V_vmux_QVV(negative, Q6_Vw_vsub_VwVw(zero, quotient), quotient);
  }

 private:
  RUNNEL_INLINE Vector Kept(Vector magnitude) const {
    return shift_ >= 32 ? Q6_V_vzero() : Q6_Vuw_vlsr_VuwR(magnitude, shift_);
  }
  RUNNEL_INLINE Vector Pseudo(Vector magnitude) const {
    const Vector high = Q6_Vuw_vlsr_VuwR(Q6_V_vand_VV(magnitude, mask_), half_);
    const Vector low = Q6_Vw_vasl_VwR(Q6_V_vand_VV(magnitude, low_mask_), shift_ % 2);
    const Predicate up = Q6_Q_vcmp_gt_VuwVuw(high, low);
    return Q6_Vw_condacc_QVwVw(up, Kept(magnitude), Splat(1));
  }
  RUNNEL_INLINE Vector HalfAway(Vector magnitude) const {
    if (shift_ > 32) return Q6_V_vzero();
    const Vector half = Q6_V_vand_VV(Q6_Vuw_vlsr_VuwR(magnitude, shift_ - 1), Splat(1));
    return Q6_Vw_vadd_VwVw(Kept(magnitude), half);
  }

  bool pseudo_;
  int shift_;
  int half_;
  Vector low_mask_;
  Vector mask_;
};

// Rounds as training does, with shift 0..31, without a branch.
class PseudoRounding {
 public:
  explicit PseudoRounding(int shift)
      : shift_(shift),
        half_(shift / 2),
        odd_(shift % 2),
        low_mask_(Splat(static_cast<int32_t>((uint32_t{1} << half_) - 1))),
        mask_(Splat(static_cast<int32_t>((uint32_t{1} << shift) - 1))) {}

  // magnitude: of the words.
  RUNNEL_INLINE Vector operator()(Vector words, Vector magnitude) const {
    const Vector high = Q6_Vuw_vlsr_VuwR(Q6_V_vand_VV(magnitude, mask_), half_);
    const Vector low = Q6_Vw_vasl_VwR(Q6_V_vand_VV(magnitude, low_mask_), odd_);
    const Predicate up = Q6_Q_vcmp_gt_VuwVuw(high, low);
    const Vector quotient = Q6_Vw_condacc_QVwVw(up, Q6_Vuw_vlsr_VuwR(magnitude, shift_), Splat(1));
    const Predicate negative = Q6_Q_vcmp_gt_VwVw(Q6_V_vzero(), words);
    return Q6_V_vmux_QVV(negative, Q6_Vw_vsub_VwVw(Q6_V_vzero(), quotient), quotient);
  }

 private:
  int shift_, half_, odd_;
  Vector low_mask_, mask_;
};

// 128 words from element `first` on, by the operation's rule; shift 0..62.
inline Words RoundWords(const DspOp& op, Draws& draws, const Words& words, int shift,
                        uint32_t first) {
  if (shift == 0) return words;
  Words result;
  if (op.rounding != kRoundStochastic) {
    const VectorRounding round(op.rounding, shift);
    for (int i = 0; i < 4; ++i) result.v[i] = round(words.v[i]);
    return result;
  }
  alignas(kVectorBytes) int32_t lanes[kVectorBytes];
  for (int i = 0; i < 4; ++i) reinterpret_cast<Vector*>(lanes)[i] = words.v[i];
  for (int i = 0; i < kVectorBytes; ++i) {
    lanes[i] = static_cast<int32_t>(RoundOne(op, draws, lanes[i], shift, first + i));
  }
  for (int i = 0; i < 4; ++i) result.v[i] = reinterpret_cast<Vector*>(lanes)[i];
  return result;
}

}  // namespace runnel::hexagon
