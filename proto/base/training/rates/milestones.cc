#include <algorithm>

#include "proto/base/training/rates/rate.h"

namespace runnel {
namespace {

// The product is formed in ascending order of milestones.
double At(const TrainingSettings& settings, absl::Span<const double> /*values*/, int64_t epoch,
          int64_t /*step*/) {
  std::vector<int64_t> milestones = settings.milestones;
  std::sort(milestones.begin(), milestones.end());
  double rate = settings.learning_rate;
  for (int64_t milestone : milestones) {
    if (epoch >= milestone) rate *= settings.milestone_factor;
  }
  return rate;
}

}  // namespace

Rate MilestonesRate() {
  return {.choice = {"milestones", "--lr, times --milestone-factor at each of --milestones"},
          .at = At};
}

}  // namespace runnel
