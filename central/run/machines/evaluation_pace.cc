#include "central/run/machines/evaluation_pace.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace runnel {

double EvaluationPace::CollectSeconds(const Plan& plan,
                                      const std::vector<DeviceFacts>& devices) const {
  double seconds = 0;
  for (const StagePlan& stage : plan.stages) {
    int64_t bytes = 0;
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer)
      bytes += options_.layer_bytes[static_cast<size_t>(layer)];
    seconds += devices[static_cast<size_t>(stage.device.value())].path.up.rate.Seconds(
        static_cast<double>(bytes));
  }
  return seconds;
}

bool EvaluationPace::IsWorth(int64_t step, const Plan& plan,
                             const std::vector<DeviceFacts>& devices, double samples_per_s,
                             RunEffects& effects) {
  if (step == last_) return true;  // asked before
  const double trained_seconds =
      samples_per_s > 0
          ? static_cast<double>((step - last_) * options_.samples_a_step) / samples_per_s
          : 0;
  const double collect_seconds = trained_seconds > 0 ? CollectSeconds(plan, devices) : 0;
  if (options_.most_share > 0 && collect_seconds > options_.most_share * trained_seconds) {
    if (!std::exchange(said_, true)) {
      effects.push_back(
          LogLine{Severity::kInfo,
                  absl::StrFormat(
                      "step %d is not evaluated: the weights would take %.2g s to come here, "
                      "more than %.3g %% of the %.2g s of training since the last evaluation; a "
                      "later epoch will be (--eval-cost-percent)",
                      step, collect_seconds, options_.most_share * 100, trained_seconds)});
    }
    return false;
  }
  last_ = step;
  return true;
}

}  // namespace runnel
