// Instructions of INT8 inference, as kernels/ir/arithmetic/code_rule.h says.

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/code_rule.h"
#include "kernels/ir/arithmetic/integer_math.h"

namespace runnel::ref {
namespace {

const CodeRule& RuleAt(const Call& call, size_t input) {
  return *reinterpret_cast<const CodeRule*>(call.in<int64_t>(input));
}

int8_t Clamped(const CodeRule& rule, int64_t code) {
  return static_cast<int8_t>(std::clamp(code + rule.zero, rule.lowest, rule.highest));
}

// Products read exponents, whatever they mean.
absl::Status WithoutScale(const Call& call) {
  if (call.out_is_scaled(0)) call.out_tail(0) = {};
  return absl::OkStatus();
}

// (n, c, spatial...) as n images of c x inner.
struct Planes {
  int64_t n, c, inner;
};
Planes PlanesOf(const Shape& shape) {
  return {shape[0], shape[1], shape.elements() / (shape[0] * shape[1])};
}

}  // namespace

absl::Status EncodeCodes(const Call& call) {
  const CodeRule& rule = RuleAt(call, 1);
  const auto factor = std::bit_cast<float>(static_cast<uint32_t>(rule.factor_a));
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    float real = call.in(0)[i] * factor;
    real = std::isnan(real) ? -1e6f : std::clamp(real, -1e6f, 1e6f);
    call.out<int8_t>(0)[i] = Clamped(rule, std::llround(real));
  }
  return WithoutScale(call);
}

absl::Status RequantizeCodes(const Call& call) {
  const CodeRule& rule = RuleAt(call, 1);
  const auto* channels = reinterpret_cast<const CodeChannel*>(&rule + 1);
  const Planes y = PlanesOf(call.out_shape(0));
  const bool is_one = call.in_shape(1).elements() == kCodeRuleWords + kCodeChannelWords;
  const bool is_codes = call.in_dtype(0) == DType::kInt8;
  const int64_t groups = call.has_input(2) ? call.in_shape(2)[1] : 1;
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int64_t plane = i / y.inner, c = plane % y.c, n = plane / y.c;
    const CodeChannel& channel = channels[is_one ? 0 : c];
    int64_t sum = channel.offset + (is_codes ? call.in<int8_t>(0)[i] : call.in<int32_t>(0)[i]);
    if (call.has_input(2)) {
      const int64_t row = (n * groups + c / (y.c / groups)) * y.inner + i % y.inner;
      sum -= channel.weight_zero * call.in<int32_t>(2)[row];
    }
    sum = std::clamp<int64_t>(sum, -INT32_MAX, INT32_MAX);
    if (call.out_dtype(0) == DType::kInt32) {
      call.out<int32_t>(0)[i] = static_cast<int32_t>(sum);
    } else {
      const auto shift = static_cast<int>(channel.shift);
      call.out<int8_t>(0)[i] = Clamped(rule, RoundHalfAway(sum * channel.multiplier, shift));
    }
  }
  return WithoutScale(call);
}

absl::Status AddCodes(const Call& call) {
  const CodeRule& rule = RuleAt(call, 2);
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int64_t sum = (call.in<int8_t>(0)[i] - rule.zero_a) * rule.factor_a +
                        (call.in<int8_t>(1)[i] - rule.zero_b) * rule.factor_b;
    call.out<int8_t>(0)[i] = Clamped(rule, RoundHalfAway(sum, static_cast<int>(rule.shift)));
  }
  return WithoutScale(call);
}

absl::Status PadCodes(const Call& call) {
  const Shape &x = call.in_shape(0), &y = call.out_shape(0);
  const int64_t top = (y[2] - x[2]) / 2, left = (y[3] - x[3]) / 2;
  int8_t* to = call.out<int8_t>(0);
  std::fill_n(to, y.elements(), static_cast<int8_t>(RuleAt(call, 1).zero_a));
  for (int64_t row = 0; row < x[0] * x[1] * x[2]; ++row) {
    const int64_t plane = row / x[2], h = row % x[2] + top;
    std::copy_n(call.in<int8_t>(0) + row * x[3], x[3], to + (plane * y[2] + h) * y[3] + left);
  }
  return WithoutScale(call);
}

absl::Status CodesToChannelsFirst(const Call& call) {
  const Planes y = PlanesOf(call.out_shape(0));
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int64_t p = i % y.inner, c = i / y.inner % y.c, n = i / (y.inner * y.c);
    call.out<int8_t>(0)[i] = call.in<int8_t>(0)[(n * y.inner + p) * y.c + c];
  }
  return WithoutScale(call);
}

absl::Status CodesToChannelsLast(const Call& call) {
  const Planes x = PlanesOf(call.in_shape(0));
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) {
    const int64_t p = i % x.inner, c = i / x.inner % x.c, n = i / (x.inner * x.c);
    call.out<int8_t>(0)[(n * x.inner + p) * x.c + c] = call.in<int8_t>(0)[i];
  }
  return WithoutScale(call);
}

}  // namespace runnel::ref
