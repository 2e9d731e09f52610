// Weight-gradients of convolutions and linear layers, over the slices of the batch.

#include <algorithm>
#include <cstdlib>

#include "kernels/backends/cpu/integer/product_slices.h"
#include "kernels/ir/arithmetic/integer_math.h"
#include "proto/base/status_macros.h"

namespace runnel::cpu {
namespace {

constexpr int64_t kChunk = 8192;

int64_t RoundUp(int64_t value) { return (value + 63) / 64 * 64; }

template <typename Body>
void ForEachChunk(const Call& call, int64_t count, const Body& body) {
  ParallelFor(call.machine, (count + kChunk - 1) / kChunk, [&](int, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) body(i * kChunk, std::min(count, (i + 1) * kChunk));
  });
}

// The sums of one slice, or all slices' so far where it adds; *max_abs (if not null) of what is
// there then.
void SumSlice(const Call& call, const Int8Context& context, const ProductSlice& slice, bool adds,
              int32_t* sums, int64_t* max_abs) {
  int32_t largest = 0;
  Int8ConvWeightGradient(context, slice.shape, call.in<int8_t>(0) + slice.y_offset(),
                         call.in<int8_t>(1) + slice.x_offset(), sums,
                         max_abs == nullptr ? nullptr : &largest, adds);
  if (max_abs != nullptr) *max_abs = largest;
}
void SumSlice(const Call& call, const Int8Context& context, const ProductSlice& slice, bool adds,
              int64_t* sums, int64_t* max_abs) {
  Int8ConvWeightGradientWide(context, slice.shape, call.in<int8_t>(0) + slice.y_offset(),
                             call.in<int8_t>(1) + slice.x_offset(), sums, max_abs, adds);
}

// Into the gradient; gives the largest sum.
template <typename T>
int64_t SumAll(const Call& call, const ProductSlices& slices) {
  int64_t max_abs = 0;
  slices.ForEach([&](const ProductSlice& slice) {
    SumSlice(call, slices.context(), slice, /*adds=*/slice.first > 0, call.out<T>(0),
             slice.is_last ? &max_abs : nullptr);
  });
  return max_abs;
}

// BatchSplit::shifted.
class ShiftedSlices {
 public:
  ShiftedSlices(const Call& call, const ConvShape& shape)
      : call_(call),
        count_(call.out_shape(0).elements()),
        narrow_(call.instruction->split.samples * shape.out_h * shape.out_w <= kMaxInt32Products),
        slices_(call, shape, narrow_ ? ConvPass::kWeightGradient : ConvPass::kWideWeightGradient),
        mantissas_(call.Take<int8_t>(slices_.count() * RoundUp(count_))),
        shifts_(call.Take<int>(slices_.count())),
        largest_(call.Take<int32_t>((count_ + kChunk - 1) / kChunk)) {}

  void Run() {
    int at = 0;
    if (narrow_) {
      auto* sums = call_.Take<int32_t>(count_);
      slices_.ForEach([&](const ProductSlice& slice) { RoundSlice(slice, sums, at++); });
    } else {
      auto* sums = call_.Take<int64_t>(count_);
      slices_.ForEach([&](const ProductSlice& slice) { RoundSlice(slice, sums, at++); });
    }
    shift_ = *std::max_element(shifts_, shifts_ + slices_.count());
    if (call_.outputs[0].buffer->dtype == DType::kInt64) {
      Merge(call_.out<int64_t>(0));
    } else {
      Merge(call_.out<int32_t>(0));
    }
    FinishSums(call_, *std::max_element(largest_, largest_ + (count_ + kChunk - 1) / kChunk),
               shift_);
  }

 private:
  template <typename T>
  void RoundSlice(const ProductSlice& slice, T* sums, int at) {
    int64_t max_abs = 0;
    SumSlice(call_, slices_.context(), slice, /*adds=*/false, sums, &max_abs);
    const IntegerRule& rule = call_.instruction->integer;
    const int shift = shifts_[at] = RescaleShift(max_abs, rule.promote_one_to_two);
    int8_t* to = mantissas_ + at * RoundUp(count_);
    ForEachChunk(call_, count_, [&](int64_t begin, int64_t end) {
      Round(sums + begin, begin, end - begin, shift, to + begin);
    });
  }

  void Round(const int32_t* sums, int64_t first, int64_t count, int shift, int8_t* to) const {
    RoundToMantissas(call_, call_.out_shape(0), first, count, sums, shift, false, nullptr, to);
  }
  void Round(const int64_t* sums, int64_t, int64_t count, int shift, int8_t* to) const {
    const bool half = call_.instruction->integer.rounding == Rounding::kHalfAway;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t rounded = shift == 0 ? sums[i]
                              : half     ? RoundHalfAway(sums[i], shift)
                                         : RoundPseudoStochastic(sums[i], shift);
      to[i] = SaturateMantissa(rounded);
    }
  }

  template <typename T>
  void Merge(T* gradient) const {
    ForEachChunk(call_, count_, [&](int64_t begin, int64_t end) {
      int32_t total[kChunk] = {};
      for (int64_t k = 0; k < slices_.count(); ++k)
        AddAligned(mantissas_ + k * RoundUp(count_) + begin, end - begin, shift_ - shifts_[k],
                   total);
      int32_t largest = 0;
      for (int64_t i = begin; i < end; ++i) {
        const int32_t sum = std::clamp(total[i - begin], -kMantissaMax, kMantissaMax);
        gradient[i] = sum;
        largest = std::max(largest, std::abs(sum));
      }
      largest_[begin / kChunk] = largest;
    });
  }

  // Quotients by 2^below, towards zero.
  static void AddAligned(const int8_t* mantissas, int64_t count, int below, int32_t* total) {
    if (below > 6) return;
    const int32_t low = (1 << below) - 1;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t m = mantissas[i];
      total[i] += (m + ((m >> 31) & low)) >> below;
    }
  }

  const Call& call_;
  const int64_t count_;
  const bool narrow_;  // the sums of a slice fit int32
  const ProductSlices slices_;
  int8_t* const mantissas_;  // by slice
  int* const shifts_;        // likewise
  int32_t* const largest_;   // by chunk
  int shift_ = 0;            // the largest of shifts_
};

// Beyond this share of wrong guesses, of 256, the sums are stored: a wrong one costs a product.
constexpr int32_t kMostMisses = 32;
constexpr int32_t kMissesDecay = 8;
constexpr int kMostTileShift = 24;  // that tiles round by

// The new weight at once, with a shift that is guessed.
class WeightStep {
 public:
  WeightStep(const Call& gradient, const Call& update, const ConvShape& shape)
      : gradient_(gradient), update_(update), shape_(shape) {}

  // Whether the guess is worth a try.
  bool IsLikely() const {
    const bool whole = gradient_.instruction->split.SliceOf(shape_.batch) == shape_.batch;
    return whole && !shape_.depthwise() && gradient_.guess->misses <= kMostMisses &&
           gradient_.guess->shift <= kMostTileShift &&
           gradient_.outputs[0].buffer->dtype == DType::kInt32;
  }

  // False: the guess was wrong, and nothing is written.
  bool Run() const {
    const ProductSlices whole(gradient_, shape_, ConvPass::kRoundedWeightGradient);
    const int64_t count = update_.out_shape(0).elements();
    auto* rounded = gradient_.Take<int8_t>(count);
    const Int8TileRounding rounding = {
        .shift = gradient_.guess->shift,
        .half_away = update_.instruction->integer.rounding == Rounding::kHalfAway};
    const int32_t max_abs =
        Int8ConvWeightGradientRounded(whole.context(), shape_, gradient_.in<int8_t>(0),
                                      gradient_.in<int8_t>(1), rounding, rounded);
    if (!Learn(max_abs)) return false;
    const int8_t* w = update_.in<int8_t>(0);
    int8_t* updated = update_.out<int8_t>(0);
    const bool changes = BitsOf(max_abs) > 0;
    ForEachChunk(update_, count, [&](int64_t begin, int64_t end) {
      if (changes) {
        update_.machine.int8->subtract_saturating(w + begin, rounded + begin, end - begin,
                                                  updated + begin);
      } else if (updated != w) {
        std::copy(w + begin, w + end, updated + begin);
      }
    });
    TailOfOutput(update_, 0) = TailOfInput(update_, 0);
    return true;
  }

  // The shift of this maximum for next time; whether it was the guess.
  bool Learn(int64_t max_abs) const {
    ShiftGuess& guess = *gradient_.guess;
    const int shift = std::max(0, BitsOf(max_abs) - GradientBitsFor(update_));
    const bool hit = shift == guess.shift;
    guess.misses += ((hit ? 0 : 256) - guess.misses) / kMissesDecay;
    guess.shift = shift;
    return hit;
  }

 private:
  const Call& gradient_;
  const Call& update_;
  const ConvShape& shape_;
};

}  // namespace

absl::Status RunWeightStep(absl::Span<const Call> calls) {
  const ConvShape shape = ProductShapeOf(calls[0], calls[0].in_shape(1), calls[0].in_shape(0));
  const WeightStep step(calls[0], calls[1], shape);
  const bool tries = step.IsLikely();
  if (tries && step.Run()) return absl::OkStatus();
  RUNNEL_RETURN_IF_ERROR(RunProductWeightGradient(calls.subspan(0, 1)));
  if (!tries) step.Learn(TailOfOutput(calls[0], 0).max_abs);
  return RunNitiUpdate(calls.subspan(1, 1));
}

absl::Status RunProductWeightGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ProductShapeOf(call, call.in_shape(1), call.in_shape(0));
  if (call.instruction->split.ShiftsSlicesOf(shape.batch)) {
    ShiftedSlices(call, shape).Run();
  } else if (call.outputs[0].buffer->dtype == DType::kInt64) {
    FinishSums(call,
               SumAll<int64_t>(call, ProductSlices(call, shape, ConvPass::kWideWeightGradient)));
  } else {
    FinishSums(call, SumAll<int32_t>(call, ProductSlices(call, shape, ConvPass::kWeightGradient)));
  }
  return absl::OkStatus();
}

}  // namespace runnel::cpu
