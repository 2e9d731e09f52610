// Forward and input-gradient of convolutions and linear layers.

#include <algorithm>
#include <cstdlib>

#include "kernels/backends/cpu/integer/product_slices.h"
#include "kernels/ir/arithmetic/integer_math.h"

namespace runnel::cpu {
namespace {

// All sums, and the largest of them.
int32_t StoreProduct(const Call& call, const ProductSlices& slices, ConvPass pass, int32_t* sums) {
  const bool forward = pass == ConvPass::kForward;
  const auto run = forward ? Int8ConvForward : Int8ConvInputGradient;
  int32_t largest = 0;
  slices.ForEach([&](const ProductSlice& slice) {
    const int64_t from = forward ? slice.x_offset() : slice.y_offset();
    const int64_t to = forward ? slice.y_offset() : slice.x_offset();
    int32_t max_abs = 0;
    run(slices.context(), slice.shape, call.in<int8_t>(0) + from, call.in<int8_t>(1), sums + to,
        &max_abs);
    largest = std::max(largest, max_abs);
  });
  return largest;
}

// Sums that are rounded at once.
constexpr int64_t kChunk = 16384;
// A wrong guess costs a whole product, a right one saves the pass over its sums, a tenth to a fifth
// of it: beyond this share of wrong guesses, of 256, the sums are stored.
constexpr int32_t kMostMisses = 32;
constexpr int32_t kMissesDecay = 8;

// A product that rescales its own sums.
class RescaledProduct {
 public:
  RescaledProduct(const Call& call, const ConvShape& shape, ConvPass pass)
      : call_(call), shape_(shape), pass_(pass), slices_(call, shape, pass) {
    const IntegerRule& rule = call.instruction->integer;
    rescale_.rounding = {.half_away = rule.rounding == Rounding::kHalfAway, .relu = rule.relu};
    if (call.inputs.size() > 2) rescale_.mask = call.in<int8_t>(2);
  }

  void Run() {
    if (call_.outputs.size() > 1) {
      KeepScale(*call_.out<KeptScale>(1));
    } else {
      Measure();
    }
    TailOfOutput(call_, 0) = {.exponent = TailOfInput(call_, 0).exponent +
                                          TailOfInput(call_, 1).exponent + rescale_.rounding.shift};
  }

 private:
  int64_t elements() const { return call_.out_shape(0).elements(); }

  void KeepScale(KeptScale& scale) {
    const RescaleRule& rule = call_.instruction->rescale;
    BeginProduct(rule, GradientBitsFor(call_), scale);
    if (MeasuresScale(rule, scale)) {
      Measure();
      return RecordMeasured(rule, rescale_.rounding.shift, scale);
    }
    rescale_.rounding.shift = scale.shift;
    const Int8SumsSeen seen = shape_.depthwise() ? RoundStored(StoreSums()) : RunAtOnce();
    RecordKept(rule, {seen.max_abs, seen.saturated, elements()}, scale);
  }

  // Rounds by the bits that the maximum asks for: by a guess that is mostly right, and again where
  // it was not; or in two passes where it mostly is not.
  void Measure() {
    ShiftGuess& guess = *call_.guess;
    int& shift = rescale_.rounding.shift;
    shift = guess.shift;
    if (shape_.depthwise() || guess.misses > kMostMisses) {
      const Stored sums = StoreSums();
      shift = ShiftOf(sums.max_abs);
      RoundStored(sums);
    } else if (const int right = ShiftOf(RunAtOnce().max_abs); right != shift) {
      shift = right;
      RunAtOnce();
    }
    guess.misses += ((shift != guess.shift ? 256 : 0) - guess.misses) / kMissesDecay;
    guess.shift = shift;
  }

  int ShiftOf(int32_t max_abs) const {
    return RescaleShift(max_abs, call_.instruction->integer.promote_one_to_two);
  }

  // Elements before a slice, of what the pass reads and of what it gives.
  int64_t SourceOffset(const ProductSlice& slice) const {
    return pass_ == ConvPass::kForward ? slice.x_offset() : slice.y_offset();
  }
  int64_t ResultOffset(const ProductSlice& slice) const {
    return pass_ == ConvPass::kForward ? slice.y_offset() : slice.x_offset();
  }

  Int8SumsSeen RunAtOnce() {
    const auto run =
        pass_ == ConvPass::kForward ? Int8ConvForwardRescaled : Int8ConvInputGradientRescaled;
    Int8SumsSeen all;
    slices_.ForEach([&](const ProductSlice& slice) {
      Int8Rescale rescale = rescale_;
      if (rescale.mask != nullptr) rescale.mask += ResultOffset(slice);
      const Int8SumsSeen seen =
          run(slices_.context(), slice.shape, call_.in<int8_t>(0) + SourceOffset(slice),
              call_.in<int8_t>(1), rescale, call_.out<int8_t>(0) + ResultOffset(slice));
      all.max_abs = std::max(all.max_abs, seen.max_abs);
      all.saturated += seen.saturated;
    });
    return all;
  }

  struct Stored {
    int32_t* sums = nullptr;
    int32_t max_abs = 0;
  };
  Stored StoreSums() {
    Stored stored = {call_.Take<int32_t>(elements())};
    stored.max_abs = StoreProduct(call_, slices_, pass_, stored.sums);
    return stored;
  }

  Int8SumsSeen RoundStored(const Stored& stored) {
    const int64_t chunks = (elements() + kChunk - 1) / kChunk;
    ParallelFor(call_.machine, chunks, [&](int, int64_t first, int64_t last) {
      const int64_t begin = first * kChunk, end = std::min(elements(), last * kChunk);
      const Int8TileRounding& rounding = rescale_.rounding;
      RoundToMantissas(call_, call_.out_shape(0), begin, end - begin, stored.sums + begin,
                       rounding.shift, rounding.relu,
                       rescale_.mask == nullptr ? nullptr : rescale_.mask + begin,
                       call_.out<int8_t>(0) + begin);
    });
    Int8SumsSeen seen = {.max_abs = stored.max_abs};
    const int64_t most = int64_t{128} << rescale_.rounding.shift;
    for (int64_t i = 0; seen.max_abs > most && i < elements(); ++i)
      seen.saturated += std::abs(int64_t{stored.sums[i]}) > most ? 1 : 0;
    return seen;
  }

  const Call& call_;
  const ConvShape shape_;
  const ConvPass pass_;
  const ProductSlices slices_;
  Int8Rescale rescale_;
};

}  // namespace

absl::Status RunRescaledForward(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ProductShapeOf(call, call.in_shape(0), call.out_shape(0));
  RescaledProduct(call, shape, ConvPass::kForward).Run();
  return absl::OkStatus();
}

absl::Status RunRescaledInputGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ProductShapeOf(call, call.out_shape(0), call.in_shape(0));
  RescaledProduct(call, shape, ConvPass::kInputGradient).Run();
  return absl::OkStatus();
}

absl::Status RunProductForward(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ProductShapeOf(call, call.in_shape(0), call.out_shape(0));
  const ProductSlices slices(call, shape, ConvPass::kForward);
  FinishSums(call, StoreProduct(call, slices, ConvPass::kForward, call.out<int32_t>(0)));
  return absl::OkStatus();
}

absl::Status RunProductInputGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ProductShapeOf(call, call.out_shape(0), call.in_shape(0));
  const ProductSlices slices(call, shape, ConvPass::kInputGradient);
  FinishSums(call, StoreProduct(call, slices, ConvPass::kInputGradient, call.out<int32_t>(0)));
  return absl::OkStatus();
}

}  // namespace runnel::cpu
