// Convolutions and linear layers: shapes for int8/int8_conv.h.

#include "kernels/cpu/integer/integer_kernels.h"

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

}  // namespace

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
