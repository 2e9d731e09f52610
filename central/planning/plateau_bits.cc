#include "central/planning/plateau_bits.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace runnel {

std::optional<ChangeTraining> PlateauBits::AtBarrier(const BarrierReport& report) {
  if (report.stages.empty()) return std::nullopt;
  if (report.plan.generation != generation_) loss_.Restart();
  generation_ = report.plan.generation;
  const double loss = loss_.Mean(report.stages.back().telemetry);
  std::optional<ChangeTraining> change = Look(loss, report.step);
  history_[report.step] = progress_;
  return change;
}

std::optional<ChangeTraining> PlateauBits::Look(double loss, int64_t step) {
  Progress& now = progress_;
  if (!std::isfinite(loss)) return std::nullopt;
  if (!now.best_loss.has_value() || loss < *now.best_loss * (1 - options_.least_fall)) {
    now.best_loss = loss;
    now.without_fall = 0;
    return std::nullopt;
  }
  if (++now.without_fall < options_.barriers) return std::nullopt;
  now.without_fall = 0;
  const GradientBits lower{std::max(now.bits.conv - 1, options_.lowest),
                           std::max(now.bits.linear - 1, options_.lowest)};
  if (lower == now.bits) return std::nullopt;
  now.bits = lower;
  return ChangeTraining{
      {step, lower},
      absl::StrFormat("the training loss %.4f has not fallen below %.4f for %d barriers", loss,
                      *now.best_loss, options_.barriers)};
}

void PlateauBits::GoBackTo(int64_t step) {
  history_.erase(history_.upper_bound(step), history_.end());
  progress_ = history_.empty() ? Progress{.bits = options_.first} : history_.rbegin()->second;
}

}  // namespace runnel
