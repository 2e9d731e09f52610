#include "worker/inference/tally.h"

#include <algorithm>
#include <cmath>

namespace runnel {
namespace {

constexpr double kLossSteps = 1 << 24;

}  // namespace

void Tally::Add(absl::Span<const float> logits, int32_t label) {
  const auto* most = std::max_element(logits.begin(), logits.end());
  const double largest = *most;
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - largest);
  const double loss = std::log(sum) + largest - logits[static_cast<size_t>(label)];
  loss_sum += std::round(loss * kLossSteps) / kLossSteps;
  correct += most - logits.begin() == label ? 1 : 0;
}

}  // namespace runnel
