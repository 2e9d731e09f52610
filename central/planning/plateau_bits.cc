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
  if (!std::isfinite(loss)) return std::nullopt;
  if (!best_loss_.has_value() || loss < *best_loss_ * (1 - options_.least_fall)) {
    best_loss_ = loss;
    without_fall_ = 0;
    return std::nullopt;
  }
  if (++without_fall_ < options_.barriers) return std::nullopt;
  without_fall_ = 0;
  const GradientBits lower{std::max(bits_.conv - 1, options_.lowest),
                           std::max(bits_.linear - 1, options_.lowest)};
  if (lower == bits_) return std::nullopt;
  bits_ = lower;
  return ChangeTraining{
      {report.step, lower},
      absl::StrFormat("the training loss %.4f has not fallen below %.4f for %d barriers", loss,
                      *best_loss_, options_.barriers)};
}

}  // namespace runnel
