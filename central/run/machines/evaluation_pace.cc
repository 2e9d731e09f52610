#include "central/run/machines/evaluation_pace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "proto/transport/control/control.h"

namespace runnel {

double EvaluationPace::CollectSeconds(const BarrierReport& report) const {
  double seconds = 0;
  for (const StagePlan& stage : report.plan.stages) {
    int64_t bytes = 0;
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer)
      bytes += options_.layer_bytes[static_cast<size_t>(layer)];
    seconds += OfSoleDevice(stage, report.devices).path.up.rate.Seconds(static_cast<double>(bytes));
  }
  return seconds;
}

bool EvaluationPace::TakesProcessor(const BarrierReport& report) const {
  int64_t threads = options_.worker_threads;  // threads of the evaluation
  bool is_shared = false;
  for (const int one : report.plan.devices()) {
    const DeviceFacts& device = report.devices[static_cast<size_t>(one)];
    if (!device.is_local) continue;
    threads += options_.worker_threads;
    is_shared = is_shared || device.processor_share < kWholeProcessor;
  }
  const bool have_room = options_.host_threads == 0 || threads <= options_.host_threads;
  return is_shared || !have_room;
}

bool EvaluationPace::IsWorth(const BarrierReport& report, double samples_per_s,
                             RunEffects& effects) {
  const int64_t step = report.step;
  if (step == last_) return true;  // asked before
  const double trained_seconds =
      samples_per_s > 0
          ? static_cast<double>((step - last_) * options_.samples_a_step) / samples_per_s
          : 0;
  const double collect_seconds = trained_seconds > 0 ? CollectSeconds(report) : 0;
  takes_processor_ = TakesProcessor(report);
  const double compute_seconds = trained_seconds > 0 && takes_processor_ ? took_seconds_ : 0;
  const double cost_seconds = collect_seconds + compute_seconds;
  if (options_.most_share > 0 && cost_seconds > options_.most_share * trained_seconds) {
    if (!std::exchange(said_, true)) {
      effects.push_back(LogLine{
          Severity::kInfo,
          absl::StrFormat(
              "step %d is not evaluated: the weights would take %.2g s to come here and "
              "the test set, as last time, %.2g s of a processor that trains, more than %.3g %% of "
              "the "
              "%.2g s of training since the last evaluation; a later epoch will be "
              "(--eval-cost-percent)",
              step, collect_seconds, compute_seconds, options_.most_share * 100, trained_seconds)});
    }
    return false;
  }
  last_ = step;
  return true;
}

}  // namespace runnel
