// Loss, gradient sums and weight update of NITI (specs/niti.md 4.1, 4.3 and 5).

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/integer_math.h"
#include "kernels/ref/ref_kernels.h"

namespace runnel::ref {
namespace {

// g_j of one sample; their sum is positive.
std::vector<int64_t> Weights(const int8_t* logits, int64_t classes, int32_t tail_exponent) {
  // Beyond these the results do not change (24: every difference is 10 or more) or 2048 * g would
  // leave int64 (-24).
  const int e = std::clamp(tail_exponent, -24, 24);
  std::vector<int64_t> g(static_cast<size_t>(classes));
  if (e <= -7) {
    for (int64_t j = 0; j < classes; ++j) {
      const int64_t v = logits[j];
      g[j] = (int64_t{1} << (1 - 2 * e)) + v * (int64_t{1} << (1 - e)) + v * v;
    }
    return g;
  }
  for (int64_t j = 0; j < classes; ++j) {
    const int64_t s = int64_t{logits[j]} * 47274 / 32768;  // log2(e)
    g[j] = e >= 0 ? s * (int64_t{1} << e) : s / (int64_t{1} << -e);
  }
  const int64_t largest = *std::max_element(g.begin(), g.end());
  for (int64_t& s : g) s = (int64_t{1} << std::max<int64_t>(0, s - (largest - 10))) - 1;
  return g;
}

double RealLoss(const int8_t* logits, int64_t classes, int32_t exponent, int32_t label) {
  const double scale = std::ldexp(1.0, exponent);
  const double largest = *std::max_element(logits, logits + classes) * scale;
  double sum = 0;
  for (int64_t j = 0; j < classes; ++j) sum += std::exp(logits[j] * scale - largest);
  return std::log(sum) - (logits[label] * scale - largest);
}

absl::Status CrossEntropy(const Call& call, int8_t* gradient, double* metrics) {
  const int64_t batch = call.in_shape(0)[0], classes = call.in_shape(0)[1];
  const int32_t exponent = call.in_tail(0).exponent;
  double losses = 0, correct = 0;
  for (int64_t n = 0; n < batch; ++n) {
    const int8_t* logits = call.in<int8_t>(0) + n * classes;
    const int32_t label = call.in<int32_t>(1)[n];
    if (label < 0 || label >= classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", label, " of sample ", n, " is not below ", classes, " classes"));
    }
    losses += RealLoss(logits, classes, exponent, label);
    correct += std::max_element(logits, logits + classes) - logits == label;
    if (gradient == nullptr) continue;
    std::vector<int64_t> p = Weights(logits, classes, exponent);
    int64_t sum = 0, floored = 0;
    for (int64_t g : p) sum += g;
    for (int64_t& g : p) floored += g = 2048 * g / sum;
    p[label] -= floored;
    for (int64_t j = 0; j < classes; ++j) {
      const int64_t element = n * classes + j;
      gradient[element] = SaturateMantissa(RoundBy(call, p[j], 4, element));
    }
  }
  metrics[0] = losses;
  metrics[1] = correct;
  return absl::OkStatus();
}

template <typename T>
void Update(const Call& call, const T* gradient) {
  const GradientBits& bits = call.context.gradient_bits;
  const int mu = call.attributes().kind == OpKind::kLinear ? bits.linear : bits.conv;
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

absl::Status IntegerSoftmaxCrossEntropy(const Call& call) {
  const absl::Status status = CrossEntropy(call, call.out<int8_t>(0), call.out<double>(1));
  call.out_tail(0) = {.exponent = 0};
  return status;
}

absl::Status IntegerSoftmaxCrossEntropyEval(const Call& call) {
  return CrossEntropy(call, nullptr, call.out<double>(0));
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
