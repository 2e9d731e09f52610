#include <algorithm>

#include "proto/base/training/rates/rate.h"
#include "proto/base/turns.h"

namespace runnel {
namespace {

// From `from` at 0 to `to` at 1 along half a cosine wave.
double HalfWave(double from, double to, double share) {
  const double sine = SinTurns(std::clamp(share, 0.0, 1.0) / 4);
  return from + (to - from) * std::min(1.0, sine * sine);
}

// Smith and Topin, arXiv 1708.07120, in two phases, with the steps of PyTorch's OneCycleLR.
double At(const TrainingSettings& settings, absl::Span<const double> values, int64_t /*epoch*/,
          int64_t step) {
  const double up = values[0], start = 1 / values[1], end = start / values[2];
  const auto steps = static_cast<double>(settings.run_steps);
  const double top = up * steps - 1, last = steps - 1, now = static_cast<double>(step);
  if (top > 0 && now <= top) return settings.learning_rate * HalfWave(start, 1, now / top);
  if (last <= top) return settings.learning_rate;
  return settings.learning_rate * HalfWave(1, end, (now - top) / (last - top));
}

}  // namespace

Rate OneCycleRate() {
  return {
      .choice = {"one_cycle",
                 "up from --lr / START to --lr in the first UP of the run's steps, then down to "
                 "the first rate / END, each along half a cosine wave",
                 {{{"UP", 0.3, {0, 1}}, {"START", 25, {1, 1e6}}, {"END", 1e4, {1, 1e9}}}}},
      .at = At,
      .needs_run_steps = true};
}

}  // namespace runnel
