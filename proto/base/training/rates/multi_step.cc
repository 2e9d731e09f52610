#include "proto/base/training/rates/rate.h"

namespace runnel {
namespace {

// The milestones of a schedule that is published as shares of its length, whatever the run's.
double At(const TrainingSettings& settings, absl::Span<const double> values, int64_t /*epoch*/,
          int64_t step) {
  double rate = settings.learning_rate;
  for (const double share : values) {
    const bool is_past =
        static_cast<double>(step) >= share * static_cast<double>(settings.run_steps);
    if (settings.run_steps > 0 && is_past) rate *= settings.milestone_factor;
  }
  return rate;
}

}  // namespace

Rate MultiStepRate() {
  return {.choice = {"multi_step",
                     "--lr, times --milestone-factor at each of these shares of the run's steps",
                     {{{"SHARE", 0.5, {0, 1}},
                       {"SHARE", 0.75, {0, 1}},
                       {"SHARE", 1, {0, 1}},
                       {"SHARE", 1, {0, 1}}}}},
          .at = At,
          .needs_run_steps = true};
}

}  // namespace runnel
