#include "central/planning/rules/loss_interval.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/barrier_every.h"
#include "proto/json/json_fields.h"

namespace runnel {

std::optional<ChangeTraining> LossInterval::AtBarrier(const BarrierReport& report) {
  const RunPace& pace = report.pace;
  has_looked_ = true;
  seconds_ = before_seconds_ + pace.trained_seconds;
  losses_ = before_losses_ + pace.losses;
  const bool has_room = report.changes == nullptr || report.changes->size() < kMostChanges;
  if (!has_room || !report.is_regular || pace.step_seconds <= 0 || pace.barrier_seconds <= 0)
    return std::nullopt;
  const double loss_seconds = (kFirstLossSeconds + seconds_) / static_cast<double>(1 + losses_);
  const double best_steps = std::sqrt(2 * pace.barrier_seconds * loss_seconds) / pace.step_seconds;
  const auto every = static_cast<int64_t>(std::clamp(best_steps, static_cast<double>(kLeastSteps),
                                                     static_cast<double>(kMostBarrierEvery)));
  const double factor = static_cast<double>(every) / static_cast<double>(every_);
  if (factor < kLeastFactor && factor > 1 / kLeastFactor) return std::nullopt;
  every_ = every;
  return ChangeTraining{
      ChangeOfBarrierEvery(report.step, every),
      losses_ == 0 ? absl::StrFormat("a barrier takes %.3g s, and no worker was lost so far",
                                     pace.barrier_seconds)
                   : absl::StrFormat("a barrier takes %.3g s, and a worker is lost every %.0f s",
                                     pace.barrier_seconds, loss_seconds)};
}

std::string LossInterval::State() const {
  return DumpJson(Json{{"every", every_}, {"seconds", seconds_}, {"losses", losses_}});
}

absl::Status LossInterval::Restore(absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(state));
  JsonObject object(json, "progress");
  int64_t every = 0, losses = 0;
  double seconds = 0;
  object.Read("every", every).Read("seconds", seconds).Read("losses", losses);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  RUNNEL_RETURN_IF_ERROR(CheckBarrierEveryValue(absl::StrCat(every)));
  if (!(seconds >= 0) || !std::isfinite(seconds) || losses < 0)
    return absl::InvalidArgumentError("seconds and losses must be at least 0");
  every_ = every;
  // A recovery takes the interval back, not the time that has passed, nor the loss.
  if (has_looked_) return absl::OkStatus();
  before_seconds_ = seconds_ = seconds;
  before_losses_ = losses_ = losses;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TrainingRule>> MakeLossInterval(absl::string_view value,
                                                               absl::string_view arguments) {
  RUNNEL_ASSIGN_OR_RETURN(const int64_t every, BarrierEveryOfValue(value));
  if (!arguments.empty())
    return absl::InvalidArgumentError(absl::StrCat("'", arguments, "': the rule has no arguments"));
  return std::make_unique<LossInterval>(every);
}

}  // namespace runnel
