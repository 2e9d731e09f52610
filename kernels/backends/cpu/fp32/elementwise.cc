// Elementwise instructions: any layout, all operands alike.

#include "kernels/backends/cpu/fp32/elementwise.h"

#include <cstring>

#include "kernels/backends/host/plain_kernels.h"

namespace runnel::fp32 {
namespace {

absl::Status Binary(const Call& call, void (*kernel)(const float*, const float*, int64_t, float*)) {
  return OverElements(call, [&](int64_t at, int64_t count) {
    kernel(call.in(0) + at, call.in(1) + at, count, call.out(0) + at);
  });
}

}  // namespace

absl::Status ReluForward(Calls calls) { return Unary(calls[0], calls[0].kernels().relu); }
absl::Status Relu6Forward(Calls calls) { return Unary(calls[0], calls[0].kernels().relu6); }
absl::Status ReluInputGradient(Calls calls) {
  return Binary(calls[0], calls[0].kernels().relu_gradient);
}
absl::Status Relu6InputGradient(Calls calls) {
  return Binary(calls[0], calls[0].kernels().relu6_gradient);
}
namespace {

absl::Status StoreMask(const Call& call, void (*kernel)(const float*, int64_t, uint8_t*)) {
  static_assert(kElementsPerThread % 8 == 0);
  return OverElements(call, call.in_shape(0).elements(), [&](int64_t at, int64_t count) {
    kernel(call.in(0) + at, count, call.out<uint8_t>(0) + at / 8);
  });
}

}  // namespace

absl::Status ReluMask(Calls calls) { return StoreMask(calls[0], calls[0].kernels().relu_mask); }
absl::Status Relu6Mask(Calls calls) { return StoreMask(calls[0], calls[0].kernels().relu6_mask); }
absl::Status MaskedInputGradient(Calls calls) {
  const Call& call = calls[0];
  return OverElements(call, [&](int64_t at, int64_t count) {
    call.kernels().masked_gradient(call.in(0) + at, call.in<uint8_t>(1) + at / 8, count,
                                   call.out(0) + at);
  });
}

absl::Status GeluForward(Calls calls) {
  const Kernels& kernels = calls[0].kernels();
  return Unary(calls[0],
               calls[0].instruction->attributes.exact ? kernels.exact_gelu : kernels.gelu);
}
absl::Status GeluInputGradient(Calls calls) {
  const Kernels& kernels = calls[0].kernels();
  return Binary(calls[0], calls[0].instruction->attributes.exact ? kernels.exact_gelu_gradient
                                                                 : kernels.gelu_gradient);
}
absl::Status Add(Calls calls) { return Binary(calls[0], calls[0].kernels().add); }

absl::Status UpdateByOptimizer(Calls calls) {
  const Call& call = calls[0];
  const OptimizerStep& step = *call.instruction->optimizer;
  const auto update = call.kernels().updates[step.row];
  const OptimizerScalars scalars = step.scalars(*call.context);
  return OverElements(call, [&](int64_t at, int64_t count) {
    float* slots[kMostSlots] = {};
    for (size_t k = 2; k < call.inputs.size(); ++k)
      slots[k - 2] = reinterpret_cast<float*>(call.inputs[k].data) + at;
    update(scalars, call.in(0) + at, call.in(1) + at, slots, count, call.out(0) + at);
  });
}

absl::Status Copy(Calls calls) {
  const Call& call = calls[0];
  const Buffer &from = *call.inputs[0].buffer, &to = *call.outputs[0].buffer;
  if (from.dtype != to.dtype) {
    host::ConvertFloats({call.inputs[0].data, static_cast<size_t>(from.bytes())}, from.dtype,
                        {call.outputs[0].data, static_cast<size_t>(to.bytes())}, to.dtype);
    return absl::OkStatus();
  }
  std::memmove(call.outputs[0].data, call.inputs[0].data,
               static_cast<size_t>(call.outputs[0].buffer->bytes()));
  return absl::OkStatus();
}

}  // namespace runnel::fp32
