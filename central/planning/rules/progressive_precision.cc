#include "central/planning/rules/progressive_precision.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {

std::optional<ChangeTraining> ProgressiveLevels::AtBarrier(const BarrierReport& report) {
  if (report.stages.empty()) return std::nullopt;
  if (report.plan.generation != generation_) seen_ = Sums();
  generation_ = report.plan.generation;
  const Telemetry& loss_stage = report.stages.back().telemetry;
  period_.loss += loss_stage.loss_sum - seen_.loss;
  period_.samples += loss_stage.loss_samples - seen_.samples;
  seen_ = {loss_stage.loss_sum, loss_stage.loss_samples};
  const bool looks =
      options_.every_steps == 0 ? report.is_regular : report.step % options_.every_steps == 0;
  if (!looks || period_.samples == 0) return std::nullopt;
  // As a float: the sums of a run that was resumed are rounded elsewhere, in their last bits.
  const auto mean = static_cast<float>(period_.loss / static_cast<double>(period_.samples));
  period_ = Sums();
  const double eps = indicator_.eps();
  const double share = report.run_steps == 0 ? 0
                                             : static_cast<double>(report.step) /
                                                   static_cast<double>(report.run_steps);
  if (!indicator_.Observe(mean, share)) return std::nullopt;
  const int64_t level = indicator_.turns();
  const std::optional<double> moved = indicator_.distance();
  const std::string why =
      moved.has_value() && *moved <= eps
          ? absl::StrFormat(
                "the training loss moved by %.4f of its scale, at most %.4f, in %d "
                "periods",
                *moved, eps, LossIndicator::kPeriods)
          : absl::StrFormat("%.0f %% of the run are done, the latest for it", 100 * share);
  return ChangeTraining{{report.step, std::string(dial_), absl::StrCat(level)},
                        absl::StrCat(levels_[static_cast<size_t>(level)], "; ", why)};
}

std::string ProgressiveLevels::State() const {
  return DumpJson(Json{
      {"loss", period_.loss}, {"samples", period_.samples}, {"indicator", indicator_.State()}});
}

absl::Status ProgressiveLevels::Restore(absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(state));
  JsonObject object(json, "progress");
  Sums period;
  std::string indicator;
  object.Read("loss", period.loss).Read("samples", period.samples).Read("indicator", indicator);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  RUNNEL_RETURN_IF_ERROR(indicator_.Restore(indicator));
  period_ = period;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TrainingRule>> MakeProgressivePrecision(
    absl::string_view value, absl::string_view arguments) {
  RUNNEL_RETURN_IF_ERROR(CheckPrecisionValue(value));
  RUNNEL_ASSIGN_OR_RETURN(const PrecisionSetting setting,
                          ParsePrecision(absl::StrCat("pfq:", arguments)));
  RUNNEL_ASSIGN_OR_RETURN(const LossIndicatorOptions options,
                          ParseLossIndicator(setting.rule_arguments));
  std::vector<std::string> levels;
  for (const GridBits& bits : setting.levels)
    levels.push_back(absl::StrCat(GridBitsText(bits), " bits"));
  return std::make_unique<ProgressiveLevels>(kPrecisionDial, std::move(levels), options);
}

absl::StatusOr<std::unique_ptr<TrainingRule>> MakeProgressiveCost(absl::string_view value,
                                                                  absl::string_view arguments) {
  RUNNEL_RETURN_IF_ERROR(CheckCostLevelValue(value));
  RUNNEL_ASSIGN_OR_RETURN(const CostTargetSetting setting, ParseCostTarget(arguments));
  RUNNEL_ASSIGN_OR_RETURN(const LossIndicatorOptions options,
                          ParseLossIndicator(setting.rule_arguments));
  std::vector<std::string> levels;
  for (const double percent : setting.percents)
    levels.push_back(absl::StrCat(CostTargetText(percent), " of FP32"));
  return std::make_unique<ProgressiveLevels>(kCostTargetDial, std::move(levels), options);
}

}  // namespace runnel
