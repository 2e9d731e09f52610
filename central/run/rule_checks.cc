#include "central/run/rule_checks.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/planning/rules/progressive_precision.h"
#include "central/planning/rules/training_rules.h"
#include "central/settings/gradient_bits_setting.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/barrier_every.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/precision/code_families.h"
#include "proto/base/training/precision/gate_cost.h"

namespace runnel {
namespace {

// The rule looks where there are barriers.
absl::Status CheckPeriod(const TrainingRule& rule, int64_t barriers) {
  const int64_t every = rule.every_steps();
  if (barriers == kDecidedBarrierEvery) {
    return absl::InvalidArgumentError(
        "it looks where barriers are, and --barrier-every auto moves them by the clock; give that "
        "a "
        "number");
  }
  if (every % barriers == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("EVERY ", every,
                                                 " is no multiple of --barrier-every ", barriers,
                                                 "; take ", (every / barriers + 1) * barriers));
}

}  // namespace

absl::Status CheckGradientBitsRule(const RunSettings& settings) {
  if (settings.gradient_bits.empty()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const GradientBitsSetting bits,
                          ParseGradientBitsSetting(settings.gradient_bits));
  if (bits.rule.empty()) return absl::OkStatus();
  const absl::StatusOr<const TrainingRuleRow*> row = FindTrainingRule(bits.rule, kGradientBitsDial);
  const absl::Status status =
      row.ok() ? (*row)->make(GradientBitsText(bits.steps), bits.rule_arguments).status()
               : row.status();
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("--gradient-bits ", settings.gradient_bits, ": ", status.message()));
}

// Bits that the recipe has, and a rule that looks where there are barriers.
absl::Status CheckPrecision(const RunSettings& settings) {
  const std::string& text = settings.training.precision;
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--precision ", text, ": ", what));
  };
  RUNNEL_ASSIGN_OR_RETURN(const PrecisionSetting setting, ParsePrecision(text));
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName recipe, ParseRecipeName(settings.recipe));
  const bool has_gates = !settings.gates.empty() && settings.gates != "off";
  if (has_gates && setting.kind != PrecisionSetting::Kind::kRecipe)
    return wrong(
        "gates give each sample its bits, and what moves them is --cost-target (FracTrain); leave "
        "--precision or --gates out");
  if (const absl::Status fits = CheckPrecisionOf(setting, recipe); !fits.ok())
    return wrong(fits.message());
  if (setting.kind != PrecisionSetting::Kind::kRule) return absl::OkStatus();
  const absl::StatusOr<const TrainingRuleRow*> row = FindTrainingRule(setting.rule, kPrecisionDial);
  if (!row.ok()) return wrong(row.status().message());
  const auto rule = (*row)->make("0", text.substr(setting.rule.size() + 1));
  if (!rule.ok()) return wrong(rule.status().message());
  if (const absl::Status fits = CheckPeriod(**rule, settings.barrier_every); !fits.ok())
    return wrong(fits.message());
  return absl::OkStatus();
}

// Targets that the model's gates can keep, and a rule that looks where there are barriers.
absl::Status CheckCostTarget(const RunSettings& settings, const ModelSpec& model) {
  const std::string& text = settings.training.cost_target;
  if (!HasCostTarget(settings.training)) return absl::OkStatus();
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--cost-target ", text, ": ", what));
  };
  RUNNEL_ASSIGN_OR_RETURN(const CostTargetSetting setting, ParseCostTarget(text));
  RUNNEL_ASSIGN_OR_RETURN(const GateCost cost, GateCost::Of(model));
  if (!cost.learns())
    return wrong("there are no gates that learn; add --gates, such as ff:0,3,4,6/6,6,8,8");
  for (const double percent : setting.percents) {
    if (percent < cost.least_percent()) {
      return wrong(absl::StrFormat("%g %% is below the cheapest option of --gates, %.4g %%",
                                   percent, cost.least_percent()));
    }
    if (percent > cost.most_percent()) {
      return wrong(absl::StrFormat("%g %% is above the dearest option of --gates, %.4g %%", percent,
                                   cost.most_percent()));
    }
  }
  const auto rule = MakeProgressiveCost("0", text);
  if (!rule.ok()) return wrong(rule.status().message());
  if (const absl::Status fits = CheckPeriod(**rule, settings.barrier_every); !fits.ok())
    return wrong(fits.message());
  return absl::OkStatus();
}

absl::Status CheckTrainingBackend(const RunSettings& settings, const NumberFormat& format) {
  if (settings.backend != "hexagon" || format.integer_parameters()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName recipe, ParseRecipeName(settings.recipe));
  return absl::InvalidArgumentError(absl::StrCat(
      "--backend hexagon: it trains integers alone, recipe ", settings.recipe, " has floats; take ",
      MultipliesCodes(*recipe.family)
          ? "--backend cpu,hexagon, where the DSP has its products of codes"
          : "--recipe niti or --backend cpu"));
}

}  // namespace runnel
