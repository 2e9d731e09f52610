#include <algorithm>

#include "proto/base/training/rates/rate.h"
#include "proto/base/turns.h"

namespace runnel {
namespace {

// Half a cosine wave from the end of the warm-up, where it is 1, to the run's end, where it is FLOOR
// (Loshchilov and Hutter, arXiv 1608.03983, without restarts).
double At(const TrainingSettings& settings, absl::Span<const double> values, int64_t /*epoch*/,
          int64_t step) {
  const int64_t steps = settings.run_steps - settings.warm_up_steps;
  if (steps <= 0) return settings.learning_rate;
  const int64_t done = std::clamp<int64_t>(step - settings.warm_up_steps, 0, steps);
  // (1 + cos 2a) / 2 = 1 - sin^2 a: 1 at the start whatever the last bits of the sine, and never
  // below 0.
  const double sine = SinTurns(static_cast<double>(done) / static_cast<double>(steps) / 4);
  const double floor = values[0];
  return settings.learning_rate * (floor + (1 - floor) * std::max(0.0, 1 - sine * sine));
}

}  // namespace

Rate CosineRate() {
  return {.choice = {"cosine",
                     "from --lr behind --warm-up-steps along half a cosine wave to FLOOR times it "
                     "at the run's end",
                     {{{"FLOOR", 0, {0, 1}}}}},
          .at = At,
          .needs_run_steps = true};
}

}  // namespace runnel
