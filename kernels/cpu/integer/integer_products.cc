// Convolutions and linear layers: shapes for int8/int8_conv.h.

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

// A product that rescales its own sums.
class RescaledProduct {
 public:
  RescaledProduct(const Call& call, const ConvShape& shape, ConvPass pass)
      : call_(call), shape_(shape), pass_(pass), context_(ContextOf(call, shape, pass)) {
    const bool half_away = call.instruction->integer.rounding == Rounding::kHalfAway;
    rescale_.round = half_away ? call.machine.int8->rescale_half_away
                               : call.machine.int8->rescale_pseudo_stochastic;
    rescale_.relu = call.instruction->integer.relu;
    if (call.inputs.size() > 2) rescale_.mask = call.in<int8_t>(2);
    if (shape.depthwise()) sums_ = call.Take<int32_t>(elements());
  }

  void Run() {
    if (call_.outputs.size() > 1) {
      KeepScale(*call_.out<KeptScale>(1));
    } else {
      Speculate(*call_.last_shift);
    }
    TailOfOutput(call_, 0) = {.exponent = TailOfInput(call_, 0).exponent +
                                          TailOfInput(call_, 1).exponent + rescale_.shift};
  }

 private:
  int64_t elements() const { return call_.out_shape(0).elements(); }

  void KeepScale(KeptScale& scale) {
    const RescaleRule& rule = call_.instruction->rescale;
    BeginProduct(rule, GradientBitsFor(call_), scale);
    if (MeasuresScale(rule, scale)) {
      Speculate(scale.shift);
      return RecordMeasured(rule, rescale_.shift, scale);
    }
    const Int8SumsSeen seen = RunBy(scale.shift);
    RecordKept(rule, {seen.max_abs, seen.saturated, elements()}, scale);
  }

  // Rounds by `guess` bits, which are mostly right; by those that the maximum asks for where they
  // are not. Leaves these there.
  void Speculate(int32_t& guess) {
    const int shift =
        RescaleShift(RunBy(guess).max_abs, call_.instruction->integer.promote_one_to_two);
    if (shift != guess) RunBy(shift);
    guess = shift;
  }

  Int8SumsSeen RunBy(int shift) {
    rescale_.shift = shift;
    if (sums_ != nullptr) return RunDepthwise();
    const auto run =
        pass_ == ConvPass::kForward ? Int8ConvForwardRescaled : Int8ConvInputGradientRescaled;
    return run(context_, shape_, call_.in<int8_t>(0), call_.in<int8_t>(1), rescale_,
               call_.out<int8_t>(0));
  }

  // In two passes.
  Int8SumsSeen RunDepthwise() {
    Int8SumsSeen seen;
    const auto run = pass_ == ConvPass::kForward ? Int8ConvForward : Int8ConvInputGradient;
    run(context_, shape_, call_.in<int8_t>(0), call_.in<int8_t>(1), sums_, &seen.max_abs);
    const int64_t most = int64_t{128} << rescale_.shift;
    for (int64_t i = 0; seen.max_abs > most && i < elements(); ++i)
      seen.saturated += std::abs(int64_t{sums_[i]}) > most ? 1 : 0;
    rescale_.round(sums_, elements(), rescale_.shift, rescale_.relu, rescale_.mask,
                   call_.out<int8_t>(0));
    return seen;
  }

  const Call& call_;
  const ConvShape shape_;
  const ConvPass pass_;
  const Int8Context context_;
  Int8Rescale rescale_;
  int32_t* sums_ = nullptr;  // of a depthwise convolution
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
