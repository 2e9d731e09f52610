#include "kernels/ir/arithmetic/integer_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

namespace runnel {
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

}  // namespace

absl::Status IntegerCrossEntropy(const IntegerLogits& logits, const int32_t* labels,
                                 int32_t* gradient, double* metrics) {
  const int64_t classes = logits.classes;
  double losses = 0, correct = 0;
  for (int64_t n = 0; n < logits.samples; ++n) {
    const int8_t* row = logits.mantissas + n * classes;
    const int32_t label = labels[n];
    if (label < 0 || label >= classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", label, " of sample ", n, " is not below ", classes, " classes"));
    }
    losses += RealLoss(row, classes, logits.exponent, label);
    correct += std::max_element(row, row + classes) - row == label;
    if (gradient == nullptr) continue;
    const std::vector<int64_t> weights = Weights(row, classes, logits.exponent);
    int64_t sum = 0, floored = 0;
    for (int64_t g : weights) sum += g;
    int32_t* out = gradient + n * classes;
    for (int64_t j = 0; j < classes; ++j) {
      out[j] = static_cast<int32_t>(2048 * weights[j] / sum);
      floored += out[j];
    }
    out[label] -= static_cast<int32_t>(floored);
  }
  metrics[0] = losses;
  metrics[1] = correct;
  return absl::OkStatus();
}

}  // namespace runnel
