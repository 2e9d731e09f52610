#include "central/settings/run_settings.h"

#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/settings/gradient_bits_setting.h"
#include "central/settings/run_fields.h"
#include "central/settings/setting_json.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/dials/loss_scale.h"
#include "proto/base/training/optimizer.h"
#include "proto/base/training/recipe_family.h"
#include "proto/base/training/weight_average.h"

namespace runnel {
namespace {

absl::Status CheckGradientBitsFlag(const RunSettings& settings) {
  if (settings.gradient_bits.empty()) return absl::OkStatus();
  const absl::Status status = ParseGradientBitsSetting(settings.gradient_bits).status();
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gradient-bits ", settings.gradient_bits, ": ", status.message()));
  }
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--gradient-bits ", settings.gradient_bits,
                                                 ": recipe ", settings.recipe,
                                                 " steps by --lr; only integer recipes have them"));
}

absl::Status CheckRescaleFlag(const RunSettings& settings) {
  const std::string& text = settings.training.rescale;
  if (text == TrainingSettings().rescale) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--rescale ", text, ": recipe ", settings.recipe,
                                                 " has no scales; only integer recipes have them"));
}

absl::Status CheckOptimizerFlag(const RunSettings& settings) {
  const std::string& text = settings.training.optimizer;
  if (text.empty() || text == TrainingSettings().optimizer) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (!format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--optimizer ", text, ": recipe ", settings.recipe,
                                                 " has integer weights; they step by "
                                                 "--gradient-bits"));
}

absl::Status CheckLossScaleFlag(const RunSettings& settings) {
  const std::string& text = settings.training.loss_scale;
  if (text == kDecidedLossScale) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (format.scales_loss()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--loss-scale ", text, ": recipe ", settings.recipe, " scales no loss; take --recipe fp16"));
}

absl::Status CheckLabelSmoothingFlag(const RunSettings& settings) {
  if (settings.training.label_smoothing == 0) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (!format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--label-smoothing ", settings.training.label_smoothing, ": recipe ", settings.recipe,
      " has a loss of integers, which knows whole labels only; take --recipe fp32"));
}

absl::Status CheckBatchSplitFlag(const RunSettings& settings) {
  const std::string& text = settings.training.batch_split;
  if (text == TrainingSettings().batch_split) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--batch-split ", text, ": the sums of recipe ",
                                                 settings.recipe,
                                                 " are not exact; only integer recipes split"));
}

absl::Status CheckClipNormFlag(const RunSettings& settings) {
  if (settings.training.clip_norm == 0) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (!format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--clip-norm ", settings.training.clip_norm, ": recipe ", settings.recipe,
                   " has integer weights; they step by --gradient-bits; take --recipe fp32"));
}

absl::Status CheckAverageFlags(const RunSettings& settings) {
  const WeightAverage* average = AverageOf(settings.training);
  if (average == nullptr) return absl::OkStatus();
  TrainingSettings others = settings.training;
  average->turn_off(others);
  if (const WeightAverage* other = AverageOf(others); other != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("--", other->flag, ": the run has --",
                                                   average->flag,
                                                   "; a run has one average, take one of them"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (!format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", average->flag, ": recipe ", settings.recipe,
                                                 " has integer weights, which have no average; "
                                                 "take --recipe fp32"));
}

absl::Status CheckStalenessFlags(const RunSettings& settings) {
  const bool looks_ahead = settings.training.look_ahead > 0;
  const int64_t aggregate_every = settings.training.aggregate_every;
  if (!looks_ahead && aggregate_every == 0) return absl::OkStatus();
  if (looks_ahead && aggregate_every != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--aggregate-every ", aggregate_every,
                     ": --look-ahead keeps no weight versions to take the mean of; use one"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (!format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(looks_ahead ? "--look-ahead" : "--aggregate-every",
                                                 ": recipe ", settings.recipe,
                                                 " has integer weights; only fp32 can use it"));
}

absl::Status CheckPredictorFlags(const RunSettings& settings) {
  if (!settings.predictor.empty() || settings.predictor_profiles.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--predictor-profiles ", settings.predictor_profiles, ": only --predictor looks at it"));
}

absl::Status CheckTogether(const RunSettings& settings) {
  for (size_t i = 1; i < settings.caps.size(); ++i) {
    if (settings.caps[i] > settings.caps[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat("--caps ", absl::StrJoin(settings.caps, ","),
                                                     ": must not grow from stage to stage"));
    }
  }
  const std::vector<int64_t>& milestones = settings.training.milestones;
  for (size_t i = 1; i < milestones.size(); ++i) {
    if (milestones[i] > milestones[i - 1]) continue;
    return absl::InvalidArgumentError(absl::StrCat("--milestones ", absl::StrJoin(milestones, ","),
                                                   ": must be in ascending order"));
  }
  if (settings.at_least > settings.workers) {
    return absl::InvalidArgumentError(absl::StrCat("--at-least ", *settings.at_least,
                                                   ": is more than --workers ", settings.workers));
  }
  if (settings.local_workers == 0 && settings.workers > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers ", settings.workers,
                     ": needs --local-workers of at least 1, the first stage runs on this host"));
  }
  return absl::OkStatus();
}

template <typename T>
void SetDefault(T& value, const T& fallback) {
  if (value == T{-1}) value = fallback;
}
template <typename T>
void SetDefault(T& value, const std::optional<T>& fallback) {
  if (fallback.has_value()) SetDefault(value, *fallback);
}

absl::StatusOr<RecipeName> RecipeNameOf(const RunSettings& settings) {
  absl::StatusOr<RecipeName> name = ParseRecipeName(settings.recipe);
  if (name.ok()) return name;
  return absl::InvalidArgumentError(absl::StrCat("--recipe: ", name.status().message()));
}

// All optimizers that may be the default keep the same beside a weight.
TrainingSettings WithAnOptimizer(TrainingSettings training) {
  if (training.optimizer.empty()) training.optimizer = TrainingSettings().optimizer;
  return training;
}

}  // namespace

absl::StatusOr<NumberFormat> FormatOf(const RunSettings& settings) {
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName name, RecipeNameOf(settings));
  return FormatOf(*name.family, WithAnOptimizer(settings.training));
}

absl::StatusOr<NumberFormat> FormatOf(const RunSettings& settings, const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName name, RecipeNameOf(settings));
  return FormatOf(*name.family, WithAnOptimizer(settings.training), model);
}

std::string IgnoredSettings(const RunSettings& settings, const NumberFormat& format) {
  if (!format.integer_parameters()) {
    const absl::StatusOr<OptimizerChoice> choice = ParseOptimizer(settings.training.optimizer);
    if (!choice.ok() || choice->optimizer->uses_momentum || settings.training.momentum <= 0)
      return "";
    return absl::StrCat("optimizer ", choice->optimizer->choice.name,
                        " does not look at --momentum");
  }
  std::vector<std::string> ignored;
  for (const RunField& field : RunFields()) {
    const auto* training = std::get_if<const TrainingField*>(&field.member);
    if (training == nullptr || !(*training)->floating_only || !IsGiven(field, settings)) continue;
    ignored.push_back(absl::StrCat("--", field.flag.name));
  }
  if (ignored.empty()) return "";
  return absl::StrCat("recipe ", settings.recipe, " does not look at ",
                      absl::StrJoin(ignored, ", "), ": its step is --gradient-bits");
}

std::string TrainingText(const RunSettings& settings, absl::string_view model,
                         const NumberFormat& format) {
  const TrainingSettings& training = settings.training;
  std::string steps = absl::StrCat("gradient bits ", settings.gradient_bits);
  if (!format.integer_parameters()) {
    steps = absl::StrCat(training.optimizer, ", rate ", training.learning_rate);
    if (training.rate != "milestones") {
      absl::StrAppend(&steps, " by ", training.rate);
    } else if (!training.milestones.empty()) {
      absl::StrAppend(&steps, " by milestones ", absl::StrJoin(training.milestones, ","));
    }
    if (training.warm_up_steps > 0)
      absl::StrAppend(&steps, " behind ", training.warm_up_steps, " steps of warm-up");
  }
  return absl::StrCat(model, " on ", settings.dataset, ": ", settings.epochs,
                      settings.epochs == 1 ? " epoch" : " epochs", ", batch ", training.batch_size,
                      ", ", settings.recipe, ", ", steps);
}

RunSettings WithDefaults(RunSettings settings, const TrainingDefaults& defaults,
                         absl::string_view default_dataset, int64_t micro_batches,
                         const NumberFormat& format) {
  if (settings.dataset.empty()) settings.dataset = std::string(default_dataset);
  SetDefault(settings.epochs, defaults.epochs);
  TrainingSettings& training = settings.training;
  SetDefault(training.batch_size, defaults.batch_size);
  SetDefault(training.eval_batch_size, training.batch_size);
  SetDefault(training.micro_batches, micro_batches);
  if (training.optimizer.empty()) {
    // Integers step by a rule of their own.
    training.optimizer = format.integer_parameters() ? TrainingSettings().optimizer
                                                     : std::string(defaults.optimizer);
  }
  if (const auto choice = ParseOptimizer(training.optimizer); choice.ok()) {
    SetDefault(training.learning_rate, choice->optimizer->learning_rate);
    SetDefault(training.weight_decay, choice->optimizer->weight_decay);
    if (!choice->optimizer->uses_momentum) SetDefault(training.momentum, 0.0);
  }
  SetDefault(training.learning_rate, defaults.learning_rate);
  SetDefault(training.momentum, defaults.momentum);
  SetDefault(training.weight_decay, defaults.weight_decay);
  if (training.rate.empty()) {
    const bool is_said =
        training.milestones != std::vector<int64_t>{-1} || training.warm_up_steps > 0;
    training.rate =
        std::string(!is_said && defaults.IsShort(settings.epochs) ? defaults.short_rate
                                                                  : TrainingSettings().rate);
  }
  SetDefault(training.milestones, defaults.MilestonesOf(settings.epochs));
  SetDefault(training.milestone_factor, defaults.milestone_factor);
  if (!format.integer_parameters()) return settings;
  if (settings.gradient_bits.empty()) {
    settings.gradient_bits = GradientBitsText(DefaultGradientBits(settings.epochs));
  }
  return settings;
}

absl::Status CheckSettings(const RunSettings& settings) {
  for (const RunField& field : RunFields()) RUNNEL_RETURN_IF_ERROR(CheckField(field, settings));
  RUNNEL_RETURN_IF_ERROR(CheckGradientBitsFlag(settings));
  RUNNEL_RETURN_IF_ERROR(CheckRescaleFlag(settings));
  RUNNEL_RETURN_IF_ERROR(CheckBatchSplitFlag(settings));
  RUNNEL_RETURN_IF_ERROR(CheckLossScaleFlag(settings));
  RUNNEL_RETURN_IF_ERROR(CheckLabelSmoothingFlag(settings));
  RUNNEL_RETURN_IF_ERROR(CheckOptimizerFlag(settings));
  RUNNEL_RETURN_IF_ERROR(CheckClipNormFlag(settings));
  RUNNEL_RETURN_IF_ERROR(CheckAverageFlags(settings));
  RUNNEL_RETURN_IF_ERROR(CheckStalenessFlags(settings));
  RUNNEL_RETURN_IF_ERROR(CheckPredictorFlags(settings));
  if (settings.early_stop > 0 && settings.eval_every < 1) {
    return absl::InvalidArgumentError(absl::StrCat("--early-stop ", settings.early_stop,
                                                   ": needs evaluations, --eval-every is ",
                                                   settings.eval_every));
  }
  if (settings.validation_share > 0 && settings.eval_every < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--validation-share ", settings.validation_share,
                                                   ": needs evaluations, --eval-every is ",
                                                   settings.eval_every));
  }
  return CheckTogether(settings);
}

std::string SettingsToJson(const RunSettings& settings) {
  return DumpJson(RunSettingsToJson(settings));
}

absl::StatusOr<RunSettings> SettingsFromJson(absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  return RunSettingsFromJson(json);
}

}  // namespace runnel
