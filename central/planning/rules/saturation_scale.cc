#include "central/planning/rules/saturation_scale.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/loss_scale.h"
#include "proto/json/json_fields.h"

namespace runnel {

std::optional<ChangeTraining> SaturationScale::AtBarrier(const BarrierReport& report) {
  if (report.plan.generation != generation_) seen_ = Sums();
  generation_ = report.plan.generation;
  Sums now;
  for (const StageStatus& stage : report.stages) {
    now.values += stage.telemetry.gradient_values;
    now.saturated += stage.telemetry.gradients_saturated;
  }
  const Sums before = std::exchange(seen_, now);
  const int64_t values = now.values - before.values, saturated = now.saturated - before.saturated;
  if (values == 0) return std::nullopt;
  int64_t& scale = progress_.scale;
  progress_.clean = saturated == 0 ? progress_.clean + 1 : 0;
  if (static_cast<double>(saturated) > kMostSaturated * static_cast<double>(values) && scale > 1) {
    scale /= 2;
    return ChangeTraining{ChangeOfLossScale(report.step, scale),
                          absl::StrCat(saturated, " of ", values, " gradients were beyond 65504")};
  }
  if (progress_.clean < kBarriers || scale == kMostLossScale) return std::nullopt;
  progress_.clean = 0;
  scale *= 2;
  return ChangeTraining{ChangeOfLossScale(report.step, scale),
                        absl::StrCat("no gradient was beyond 65504 for ", kBarriers, " barriers")};
}

std::string SaturationScale::State() const {
  return DumpJson(Json{{"scale", progress_.scale}, {"clean", progress_.clean}});
}

absl::Status SaturationScale::Restore(absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(state));
  JsonObject object(json, "progress");
  Progress read;
  object.Read("scale", read.scale).Read("clean", read.clean);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  RUNNEL_RETURN_IF_ERROR(CheckLossScaleValue(absl::StrCat(read.scale)));
  progress_ = read;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TrainingRule>> MakeSaturationScale(absl::string_view value,
                                                                  absl::string_view arguments) {
  RUNNEL_ASSIGN_OR_RETURN(const int64_t scale, LossScaleOfValue(value));
  if (!arguments.empty())
    return absl::InvalidArgumentError(absl::StrCat("'", arguments, "': the rule has no arguments"));
  return std::make_unique<SaturationScale>(scale);
}

}  // namespace runnel
