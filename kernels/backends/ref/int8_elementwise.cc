// Rescaling and the element-wise operators of integer recipes (NITI).

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/integer_math.h"
#include "proto/base/random.h"
#include "proto/base/tensor/quantize.h"

namespace runnel::ref {
namespace {

CounterRandom RandomOf(const Call& call, RandomPurpose purpose) {
  return CounterRandom(call.context.run_seed, purpose,
                       static_cast<uint64_t>(call.layer()) * kMaxOpsPerLayer + call.op(),
                       static_cast<uint64_t>(call.context.sequence.value()));
}

int64_t MaxAbs(const int8_t* values, int64_t count) {
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max<int64_t>(largest, std::abs(values[i]));
  return largest;
}

}  // namespace

int64_t RoundBy(const Call& call, int64_t value, int shift, int64_t element) {
  if (shift == 0) return value;
  switch (call.rule().rounding) {
    case Rounding::kPseudoStochastic:
      return RoundPseudoStochastic(value, shift);
    case Rounding::kHalfAway:
      return RoundHalfAway(value, shift);
    case Rounding::kStochastic:
      break;
  }
  const uint32_t bits = RandomOf(call, RandomPurpose::kRounding).Bits(element);
  const uint64_t draw = shift <= 32 ? bits >> (32 - shift) : uint64_t{bits} << (shift - 32);
  return RoundStochastic(value, shift, draw);
}

absl::Status Quantize(const Call& call) {
  const auto count = static_cast<size_t>(call.out_shape(0).elements());
  const QuantizeRule rule =
      call.rule().power_of_two_input ? QuantizeRule::kPowerOfTwo : QuantizeRule::kFullRange;
  const int32_t exponent = runnel::Quantize(absl::MakeConstSpan(call.in(0), count), rule,
                                            absl::MakeSpan(call.out<int8_t>(0), count));
  call.out_tail(0) = {.exponent = exponent};
  return absl::OkStatus();
}

absl::Status Rescale(const Call& call) {
  const ScaleTail from = call.in_tail(0);
  const int32_t* accumulators = call.in<int32_t>(0);
  const int8_t* mask = call.has_input(1) ? call.in<int8_t>(1) : nullptr;
  int8_t* y = call.out<int8_t>(0);
  const int shift = RescaleShift(from.max_abs, call.rule().promote_one_to_two);
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    const int8_t value = SaturateMantissa(RoundBy(call, accumulators[i], shift, i));
    const bool zero = (call.rule().relu && value < 0) || (mask != nullptr && mask[i] <= 0);
    y[i] = zero ? int8_t{0} : value;
  }
  call.out_tail(0) = {.exponent = from.exponent + shift};
  return absl::OkStatus();
}

absl::Status Int8ReluForward(const Call& call) {
  const int8_t* x = call.in<int8_t>(0);
  int8_t* y = call.out<int8_t>(0);
  const ScaleTail tail = call.in_tail(0);
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) y[i] = std::max<int8_t>(x[i], 0);
  call.out_tail(0) = {.exponent = tail.exponent};
  return absl::OkStatus();
}

absl::Status Int8ReluInputGradient(const Call& call) {
  const int8_t *dy = call.in<int8_t>(0), *y = call.in<int8_t>(1);
  int8_t* dx = call.out<int8_t>(0);
  const ScaleTail tail = call.in_tail(0);
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) dx[i] = y[i] > 0 ? dy[i] : int8_t{0};
  call.out_tail(0) = {.exponent = tail.exponent};
  return absl::OkStatus();
}

namespace {

absl::Status MaskDropped(const Call& call, int32_t added_exponent) {
  const double rate = call.attributes().rate;
  const CounterRandom random = RandomOf(call, RandomPurpose::kDropout);
  const int8_t* x = call.in<int8_t>(0);
  int8_t* y = call.out<int8_t>(0);
  const ScaleTail tail = call.in_tail(0);
  for (int64_t i = 0; i < call.out_shape(0).elements(); ++i) {
    y[i] = random.Uniform(static_cast<uint64_t>(i)) >= rate ? x[i] : int8_t{0};
  }
  call.out_tail(0) = {.exponent = tail.exponent + added_exponent};
  return absl::OkStatus();
}

}  // namespace

absl::Status Int8DropoutForward(const Call& call) {
  return MaskDropped(call, call.attributes().rate > 0 ? 1 : 0);
}

absl::Status Int8DropoutInputGradient(const Call& call) { return MaskDropped(call, 0); }

absl::Status Int8Add(const Call& call) {
  const int64_t count = call.out_shape(0).elements();
  const int8_t *a = call.in<int8_t>(0), *b = call.in<int8_t>(1);
  int64_t e_a = call.in_tail(0).exponent, e_b = call.in_tail(1).exponent;
  if (MaxAbs(a, count) == 0) e_a = e_b;
  if (MaxAbs(b, count) == 0) e_b = e_a;
  const int64_t difference = e_a - e_b;
  const auto aligned = [&](int64_t value, int64_t above, int64_t i) -> int64_t {
    if (above == 1) return 2 * value;
    if (above < -1) return RoundBy(call, value, static_cast<int>(std::min<int64_t>(-above, 31)), i);
    return value;
  };
  std::vector<int64_t> sums(static_cast<size_t>(count));
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    sums[i] = aligned(a[i], difference, i) + aligned(b[i], -difference, i);
    largest = std::max<int64_t>(largest, std::abs(sums[i]));
  }
  int64_t exponent = std::abs(difference) == 1 ? std::min(e_a, e_b) : std::max(e_a, e_b);
  const int shift = largest > kMantissaMax ? 2 : 0;
  for (int64_t i = 0; i < count; ++i) {
    call.out<int8_t>(0)[i] = SaturateMantissa(RoundBy(call, sums[i], shift, i));
  }
  call.out_tail(0) = {.exponent = static_cast<int32_t>(exponent + shift)};
  return absl::OkStatus();
}

}  // namespace runnel::ref
