#pragma once

// Sums that leave a product as bytes, so that they are nowhere in memory (kFlagRescaled).

#include "kernels/backends/hexagon/dsp/machine.h"
#include "kernels/backends/hexagon/dsp/rounding.h"

namespace runnel::hexagon {

// Target of rounded sums, laid out as C would be, and statistics of the sums.
struct RoundedSums {
  // shift: 0..24.
  RoundedSums(const Machine& machine, const DspOp& op, int shift_by)
      : y(machine.data<int8_t>(op.out[0])),
        mask(op.mask.data != 0 ? machine.data<int8_t>(op.mask) : nullptr),
        relu((op.flags & kFlagRelu) != 0),
        shift(shift_by),
        pseudo(op.rounding == kRoundPseudoStochastic) {}

  // The first `bytes` of the vector go to elements at.., where the mask keeps them.
  RUNNEL_INLINE void Put(uint32_t at, Vector value, int bytes) const {
    if (mask != nullptr) {
      const Predicate keeps = Q6_Q_vcmp_gt_VbVb(Load(mask + at), Q6_V_vzero());
      value = Q6_V_vmux_QVV(keeps, value, Q6_V_vzero());
    }
    StoreBytesAlone(y + at, value, bytes);
  }
  uint32_t Saturated() const {
    alignas(kVectorBytes) int32_t lanes[kVectorWords];
    *reinterpret_cast<Vector*>(lanes) = saturated;
    uint32_t count = 0;
    for (int32_t lane : lanes) count += static_cast<uint32_t>(lane);
    return count;
  }

  int8_t* y;
  const int8_t* mask;  // may be null
  bool relu;
  int shift;
  bool pseudo;  // pseudo-stochastic; else half away from zero
  Vector saturated = Q6_V_vzero();
};

// The bits that sums of this maximum lose.
inline int ShiftOf(const DspOp& op, int64_t max_abs) {
  const int shift = Max(0, BitsOf(max_abs) - 7);
  return shift == 1 && (op.flags & kFlagPromoteOneToTwo) != 0 ? 2 : shift;
}

// Rounds op.out[0].elements sums into op.out[0], as kRescale does.
void RoundStored(Machine& machine, const DspOp& op, const int32_t* sums, const DspTensor& mask,
                 int shift);

// A forward or input-gradient product as the operation's flags say; product(c, rounded) runs it to
// one of them, the other is null, and gives the largest |sum|.
template <typename Product>
DspStatus RunProduct(Machine& machine, const DspOp& op, const Product& product) {
  const int32_t exponent = machine.tail(op.in[0]).exponent + machine.tail(op.in[1]).exponent;
  if ((op.flags & kFlagRescaled) == 0) {
    machine.SetTail(op.out[0], exponent, product(machine.data<int32_t>(op.out[0]), nullptr));
    return DspStatus::kOk;
  }
  DspSums seen;
  if ((op.flags & (kFlagKept | kFlagGuessed)) != 0) {
    RoundedSums rounded(machine, op, op.shift);
    seen.max_abs = product(nullptr, &rounded);
    seen.saturated = rounded.Saturated();
    seen.shift = op.shift;
    if ((op.flags & kFlagGuessed) != 0) seen.shift = ShiftOf(op, seen.max_abs);
    if (seen.shift != op.shift) {
      RoundedSums again(machine, op, seen.shift);
      product(nullptr, &again);
    }
  } else {
    auto* sums = machine.scratch.Take<int32_t>(op.out[0].elements);
    if (sums == nullptr) return DspStatus::kNoMemory;
    seen.max_abs = product(sums, nullptr);
    seen.shift = ShiftOf(op, seen.max_abs);
    RoundStored(machine, op, sums, op.mask, seen.shift);
  }
  machine.SetTail(op.out[0], exponent + seen.shift);
  if (op.out[1].data != 0) *machine.data<DspSums>(op.out[1]) = seen;
  return DspStatus::kOk;
}

}  // namespace runnel::hexagon
