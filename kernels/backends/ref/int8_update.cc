// Loss, gradient sums and weight update of NITI.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/integer_loss.h"
#include "kernels/ir/arithmetic/integer_math.h"
#include "proto/base/status_macros.h"

namespace runnel::ref {
namespace {

template <typename T>
void Update(const Call& call, const T* gradient) {
  const int mu = GradientBitsFor(call);
  const ScaleTail weight_tail = call.in_tail(0);
  const int b = BitsOf(call.in_tail(1).max_abs);
  const int shift = std::max(0, b - mu);
  const int8_t* weight = call.in<int8_t>(0);
  int8_t* updated = call.out<int8_t>(0);
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int64_t g = b == 0 ? 0 : SaturateMantissa(RoundBy(call, gradient[i], shift, i));
    updated[i] = SaturateMantissa(weight[i] - g);
  }
  call.out_tail(0) = weight_tail;
}

template <typename T>
void AddGradient(const Call& call, const T* added) {
  const ScaleTail from = call.in_tail(0), before = call.out_tail(0);
  const bool first = !call.context.accumulate;
  const int64_t exponent = first ? from.exponent : std::max(from.exponent, before.exponent);
  int64_t* total = call.out<int64_t>(0);
  int64_t max_abs = 0;
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int64_t old = first ? 0 : DivideByPower(total[i], exponent - before.exponent);
    total[i] = old + DivideByPower(added[i], exponent - from.exponent);
    max_abs = std::max<int64_t>(max_abs, std::abs(total[i]));
  }
  call.out_tail(0) = {.exponent = static_cast<int32_t>(exponent), .max_abs = max_abs};
}

}  // namespace

int GradientBitsFor(const Call& call) {
  const GradientBits& bits = call.context.gradient_bits;
  return call.attributes().kind == OpKind::kLinear ? bits.linear : bits.conv;
}

namespace {

IntegerLogits LogitsOf(const Call& call) {
  return {call.in<int8_t>(0), call.in_shape(0)[0], call.in_shape(0)[1], call.in_tail(0).exponent};
}

}  // namespace

absl::Status IntegerSoftmaxCrossEntropy(const Call& call) {
  std::vector<int32_t> gradient(static_cast<size_t>(call.in_shape(0).elements()));
  RUNNEL_RETURN_IF_ERROR(IntegerCrossEntropy(LogitsOf(call), call.in<int32_t>(1), gradient.data(),
                                             call.out<double>(1)));
  for (size_t i = 0; i < gradient.size(); ++i) {
    const auto element = static_cast<int64_t>(i);
    call.out<int8_t>(0)[i] = SaturateMantissa(RoundBy(call, gradient[i], kLossShift, element));
  }
  call.out_tail(0) = {.exponent = 0};
  return absl::OkStatus();
}

absl::Status IntegerSoftmaxCrossEntropyEval(const Call& call) {
  return IntegerCrossEntropy(LogitsOf(call), call.in<int32_t>(1), nullptr, call.out<double>(0));
}

absl::Status NitiUpdate(const Call& call) {
  if (call.in_dtype(1) == DType::kInt64) {
    Update(call, call.in<int64_t>(1));
  } else {
    Update(call, call.in<int32_t>(1));
  }
  return absl::OkStatus();
}

absl::Status AddScaledGradient(const Call& call) {
  if (call.in_dtype(0) == DType::kInt64) {
    AddGradient(call, call.in<int64_t>(0));
  } else {
    AddGradient(call, call.in<int32_t>(0));
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
