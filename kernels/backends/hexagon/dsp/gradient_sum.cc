// Sums of the gradients of several micro-batches: 64-bit totals, 32 of them to two vectors.

#include "kernels/backends/hexagon/dsp/machine.h"
#include "kernels/backends/hexagon/dsp/wide_words.h"

namespace runnel::hexagon {
namespace {

// x / 2^shift rounded down, and where that is one less than x / 2^shift towards zero: where x is
// negative and a bit that falls out is set. The sum takes the one as a carry.
struct Quotient {
  Wide floor;
  Predicate up;
};

// Divides words by any shift.
class WordDivision {
 public:
  // From a shift of 32 on all bits fall out, also the sign's.
  explicit WordDivision(int64_t shift)
      : shift_(static_cast<int>(Min<int64_t>(shift, 31))),
        falls_(Splat(shift > 31 ? -1 : static_cast<int32_t>((uint32_t{1} << shift) - 1))) {}

  RUNNEL_INLINE Quotient operator()(Vector x) const { return Divide(x, Falling(x)); }
  // The quotient from the high words alone.
  RUNNEL_INLINE Quotient operator()(const Wide& x) const {
    return Divide(x.high, Q6_V_vor_VV(Falling(x.high), x.low));
  }

 private:
  RUNNEL_INLINE Vector Falling(Vector x) const { return Q6_V_vand_VV(x, falls_); }
  RUNNEL_INLINE Quotient Divide(Vector x, Vector falling) const {
    const Vector sign = Q6_Vw_vasr_VwR(x, 31);
    return {{Q6_Vw_vasr_VwR(x, shift_), sign}, IsNotZero(Q6_V_vand_VV(falling, sign))};
  }

  int shift_;
  Vector falls_;
};

// Divides 64-bit values by shifts of 1..31.
class NearDivision {
 public:
  explicit NearDivision(int64_t shift)
      : shift_(static_cast<int>(shift)),
        falls_(Splat(static_cast<int32_t>((uint32_t{1} << shift) - 1))) {}

  RUNNEL_INLINE Quotient operator()(const Wide& x) const {
    const Vector sign = Q6_Vw_vasr_VwR(x.high, 31);
    const Vector low = Q6_Vw_vaslacc_VwVwR(Q6_Vuw_vlsr_VuwR(x.low, shift_), x.high, 32 - shift_);
    return {{low, Q6_Vw_vasr_VwR(x.high, shift_)},
            IsNotZero(Q6_V_vand_VV(Q6_V_vand_VV(x.low, falls_), sign))};
  }

 private:
  int shift_;
  Vector falls_;
};

// Divides 64-bit values by shifts of 32 and more.
class FarDivision {
 public:
  explicit FarDivision(int64_t shift) : high_(shift > 62 ? 32 : shift - 32) {}
  RUNNEL_INLINE Quotient operator()(const Wide& x) const { return high_(x); }

 private:
  WordDivision high_;
};

RUNNEL_INLINE Wide AddQuotient(const Wide& a, const Quotient& b) {
  return AddWide(a, b.floor, b.up);
}

// 32 gradients, as they lie in memory.
RUNNEL_INLINE Wide LoadGradients(const int64_t* at) { return LoadWide(at); }
RUNNEL_INLINE Wide LoadGradients(const int32_t* at) { return WideOf(Load(at)); }

// total[i..] = sum_at(i), 32 at a time; returns the largest |total|. sum_at may read totals
// that are not written yet, and beyond the last.
template <typename SumAt>
int64_t StoreSums(uint32_t count, int64_t* total, const SumAt& sum_at) {
  MaxWide largest;
  uint32_t i = 0;
  for (; i + 2 * kVectorWords <= count; i += 2 * kVectorWords) {
    const Wide sums[] = {sum_at(i), sum_at(i + kVectorWords)};
    StoreWide(total + i, sums[0]);
    StoreWide(total + i + kVectorWords, sums[1]);
    largest.See(sums[0]);
    largest.See(sums[1]);
  }
  for (; i < count; i += kVectorWords) {
    const int left = static_cast<int>(Min<uint32_t>(kVectorWords, count - i));
    const Wide sum = sum_at(i);
    StoreWide(total + i, sum, left);
    largest.See(sum, left);
  }
  return largest.Result();
}

struct GradientSum {
  int64_t* total;
  uint32_t count;
  bool first;  // nothing is in `total` yet
  // Right shifts that bring both to the same exponent: one of them is 0.
  int64_t total_shift, shift;
};

template <typename Divide>
int64_t AddDivided(const GradientSum& sum, const int64_t* gradient, const Divide& divide) {
  return StoreSums(sum.count, sum.total, [&](uint32_t i) {
    return AddQuotient(LoadWide(sum.total + i), divide(LoadWide(gradient + i)));
  });
}

int64_t AddShifted(const GradientSum& sum, const int64_t* gradient) {
  return sum.shift < 32 ? AddDivided(sum, gradient, NearDivision(sum.shift))
                        : AddDivided(sum, gradient, FarDivision(sum.shift));
}

int64_t AddShifted(const GradientSum& sum, const int32_t* gradient) {
  return StoreSums(sum.count, sum.total, [&, divide = WordDivision(sum.shift)](uint32_t i) {
    return AddQuotient(LoadWide(sum.total + i), divide(Load(gradient + i)));
  });
}

template <typename T, typename Divide>
int64_t AddToDivided(const GradientSum& sum, const T* gradient, const Divide& divide) {
  return StoreSums(sum.count, sum.total, [&](uint32_t i) {
    return AddQuotient(LoadGradients(gradient + i), divide(LoadWide(sum.total + i)));
  });
}

template <typename T>
int64_t AddGradients(const GradientSum& sum, const T* gradient) {
  if (sum.first) {
    return StoreSums(sum.count, sum.total, [&](uint32_t i) { return LoadGradients(gradient + i); });
  }
  if (sum.shift > 0) return AddShifted(sum, gradient);
  if (sum.total_shift >= 32) return AddToDivided(sum, gradient, FarDivision(sum.total_shift));
  if (sum.total_shift > 0) return AddToDivided(sum, gradient, NearDivision(sum.total_shift));
  return StoreSums(sum.count, sum.total, [&](uint32_t i) {
    return AddWide(LoadWide(sum.total + i), LoadGradients(gradient + i));
  });
}

}  // namespace

DspStatus AddScaledGradient(Machine& machine, const DspOp& op) {
  const Tail from = machine.tail(op.in[0]), before = machine.tail(op.out[0]);
  const bool first = (op.flags & kFlagAccumulate) == 0;
  const int64_t exponent = first ? from.exponent : Max<int64_t>(from.exponent, before.exponent);
  const GradientSum sum = {.total = machine.data<int64_t>(op.out[0]),
                           .count = op.out[0].elements,
                           .first = first,
                           .total_shift = exponent - before.exponent,
                           .shift = exponent - from.exponent};
  const int64_t largest = op.in[0].bytes == sizeof(int64_t)
                              ? AddGradients(sum, machine.data<int64_t>(op.in[0]))
                              : AddGradients(sum, machine.data<int32_t>(op.in[0]));
  machine.SetTail(op.out[0], static_cast<int32_t>(exponent), largest);
  return DspStatus::kOk;
}

}  // namespace runnel::hexagon
