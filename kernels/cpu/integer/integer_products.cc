// Convolutions and linear layers: shapes for int8/int8_conv.h.

#include <algorithm>
#include <cstdlib>

#include "kernels/cpu/integer/integer_kernels.h"
#include "kernels/integer_math.h"

namespace runnel::cpu {
namespace {

ConvShape ShapeOf(const Call& call, const Shape& x, const Shape& y) {
  const OpSpec& op = call.instruction->attributes;
  if (op.kind == OpKind::kLinear) return LinearShape(x[0], y[1], x[1]);
  const Image in = ImageOf(x), out = ImageOf(y);
  const Window window = WindowOf(op, x);
  ConvShape shape;
  shape.batch = in.n;
  shape.in_h = in.h;
  shape.in_w = in.w;
  shape.in_c = in.c;
  shape.out_h = out.h;
  shape.out_w = out.w;
  shape.out_c = out.c;
  shape.kernel_h = window.kh;
  shape.kernel_w = window.kw;
  shape.stride_h = window.sh;
  shape.stride_w = window.sw;
  shape.pad_h = window.ph;
  shape.pad_w = window.pw;
  shape.groups = op.groups;
  return shape;
}

Int8Context ContextOf(const Call& call, const ConvShape& shape, ConvPass pass) {
  const Int8Kernels& kernels = *call.machine.int8;
  const int64_t bytes = Int8WorkspaceBytes(kernels, shape, pass, call.machine.workers());
  return {&kernels, call.machine.pool, call.Take<std::byte>(bytes)};
}

void Finish(const Call& call, int64_t max_abs) {
  TailOfOutput(call, 0) = {
      .exponent = TailOfInput(call, 0).exponent + TailOfInput(call, 1).exponent,
      .max_abs = max_abs};
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
      : call_(call), shape_(shape), pass_(pass), context_(ContextOf(call, shape, pass)) {
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

  Int8SumsSeen RunAtOnce() {
    const auto run =
        pass_ == ConvPass::kForward ? Int8ConvForwardRescaled : Int8ConvInputGradientRescaled;
    return run(context_, shape_, call_.in<int8_t>(0), call_.in<int8_t>(1), rescale_,
               call_.out<int8_t>(0));
  }

  struct Stored {
    int32_t* sums = nullptr;
    int32_t max_abs = 0;
  };
  Stored StoreSums() {
    Stored stored = {call_.Take<int32_t>(elements())};
    const auto run = pass_ == ConvPass::kForward ? Int8ConvForward : Int8ConvInputGradient;
    run(context_, shape_, call_.in<int8_t>(0), call_.in<int8_t>(1), stored.sums, &stored.max_abs);
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
  const Int8Context context_;
  Int8Rescale rescale_;
};

}  // namespace

absl::Status RunRescaledForward(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ShapeOf(call, call.in_shape(0), call.out_shape(0));
  RescaledProduct(call, shape, ConvPass::kForward).Run();
  return absl::OkStatus();
}

absl::Status RunRescaledInputGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ShapeOf(call, call.out_shape(0), call.in_shape(0));
  RescaledProduct(call, shape, ConvPass::kInputGradient).Run();
  return absl::OkStatus();
}

absl::Status RunProductForward(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ShapeOf(call, call.in_shape(0), call.out_shape(0));
  int32_t max_abs = 0;
  Int8ConvForward(ContextOf(call, shape, ConvPass::kForward), shape, call.in<int8_t>(0),
                  call.in<int8_t>(1), call.out<int32_t>(0), &max_abs);
  Finish(call, max_abs);
  return absl::OkStatus();
}

absl::Status RunProductInputGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ShapeOf(call, call.out_shape(0), call.in_shape(0));
  int32_t max_abs = 0;
  Int8ConvInputGradient(ContextOf(call, shape, ConvPass::kInputGradient), shape, call.in<int8_t>(0),
                        call.in<int8_t>(1), call.out<int32_t>(0), &max_abs);
  Finish(call, max_abs);
  return absl::OkStatus();
}

absl::Status RunProductWeightGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ConvShape shape = ShapeOf(call, call.in_shape(1), call.in_shape(0));
  if (call.outputs[0].buffer->dtype == DType::kInt64) {
    int64_t max_abs = 0;
    Int8ConvWeightGradientWide(ContextOf(call, shape, ConvPass::kWideWeightGradient), shape,
                               call.in<int8_t>(0), call.in<int8_t>(1), call.out<int64_t>(0),
                               &max_abs);
    Finish(call, max_abs);
    return absl::OkStatus();
  }
  int32_t max_abs = 0;
  Int8ConvWeightGradient(ContextOf(call, shape, ConvPass::kWeightGradient), shape,
                         call.in<int8_t>(0), call.in<int8_t>(1), call.out<int32_t>(0), &max_abs);
  Finish(call, max_abs);
  return absl::OkStatus();
}

}  // namespace runnel::cpu
