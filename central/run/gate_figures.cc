#include "central/run/gate_figures.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/planning/rules/gate_counts.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/precision/gate_options.h"

namespace runnel {
namespace {

GateSummary::Gate GateOf(const LayerSpec& layer, const OpSpec& gate,
                         const std::vector<int64_t>& samples) {
  GateSummary::Gate row = {layer.name, {}, samples};
  double all = 0, running = 0, bits = 0;
  for (int option = 0; option < OptionCount(gate); ++option) {
    const auto at = static_cast<size_t>(option);
    const int32_t forward = gate.options[2 * at], backward = gate.options[2 * at + 1];
    row.options.push_back(forward == 0 ? "0" : absl::StrCat(forward, "/", backward));
    const double count = at < samples.size() ? static_cast<double>(samples[at]) : 0;
    all += count;
    if (Skips(gate, option)) continue;
    running += count;
    bits += count * forward;
  }
  row.skipped_share = all > 0 ? 1 - running / all : 0;
  row.mean_bits = running > 0 ? bits / running : 0;
  return row;
}

std::vector<GateSummary::Target> TargetsOf(const CostTargetSetting& setting,
                                           const std::vector<GateTotals::Level>& levels) {
  std::vector<GateSummary::Target> targets;
  for (size_t i = 0; i < setting.percents.size(); ++i) {
    GateSummary::Target& target = targets.emplace_back();
    target.percent = setting.percents[i];
    if (i >= levels.size() || levels[i].samples <= 0) continue;
    target.samples = levels[i].samples;
    target.mean_percent = levels[i].percent_sum / static_cast<double>(levels[i].samples);
    target.last_percent = levels[i].last_percent;
  }
  return targets;
}

absl::StatusOr<std::vector<GateSummary::Gate>> GatesOf(const ModelSpec& model,
                                                       const GateTotals& totals) {
  std::vector<GateSummary::Gate> gates;
  for (const auto& [layer, samples] : totals.choices) {
    if (layer < 0 || layer >= model.layer_count())
      return absl::InvalidArgumentError(absl::StrCat("layer ", layer, " is not of the model"));
    const LayerSpec& spec = model.layers[static_cast<size_t>(layer)];
    const auto gate = std::find_if(spec.ops.begin(), spec.ops.end(),
                                   [](const OpSpec& op) { return op.kind == OpKind::kGate; });
    if (gate == spec.ops.end())
      return absl::InvalidArgumentError(absl::StrCat("layer ", layer, " has no gate"));
    gates.push_back(GateOf(spec, *gate, samples));
  }
  return gates;
}

// What the samples of each option took.
void AddEffective(const SampleMacs& macs, const RecipeName& recipe, const ModelSpec& model,
                  std::vector<GateSummary::Gate>& gates) {
  for (GateSummary::Gate& row : gates) {
    const auto gated =
        std::find_if(macs.gated.begin(), macs.gated.end(), [&](const SampleMacs::Gated& one) {
          return model.layers[static_cast<size_t>(one.layer)].name == row.layer;
        });
    if (gated == macs.gated.end()) continue;
    for (int option = 0; option < OptionCount(gated->gate); ++option) {
      PassMacs& sum = row.effective.emplace_back();
      const auto at = static_cast<size_t>(option);
      if (Skips(gated->gate, option) || at >= row.samples.size()) continue;
      const PassMacs one = EffectiveMacs(gated->macs, recipe, BitsOfOption(gated->gate, option));
      const auto samples = static_cast<double>(row.samples[at]);
      sum = {samples * one.forward, samples * one.input_gradient, samples * one.weight_gradient};
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<GateSummary::Gate>> GateChoicesOf(const ModelSpec& model,
                                                             absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(const GateTotals totals, ParseGateTotals(state));
  return GatesOf(model, totals);
}

absl::StatusOr<std::vector<GateSummary::Target>> GateTargetsOf(const TrainingSettings& training,
                                                               absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(const GateTotals totals, ParseGateTotals(state));
  RUNNEL_ASSIGN_OR_RETURN(const CostTargetSetting setting, ParseCostTarget(training.cost_target));
  return TargetsOf(setting, totals.levels);
}

double GatesEffectiveMacs(const RuleStates& states) {
  const auto counted = states.find(std::string(GateCounts::kName));
  if (counted == states.end()) return 0;
  const absl::StatusOr<GateTotals> totals = ParseGateTotals(counted->second);
  return totals.ok() ? totals->effective_macs : 0;
}

absl::StatusOr<GateSummary> GateSummaryOf(const RunSetup& setup, const PrecisionCost& cost,
                                          absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(const GateTotals totals, ParseGateTotals(state));
  RUNNEL_ASSIGN_OR_RETURN(const CostTargetSetting setting,
                          ParseCostTarget(setup.training.cost_target));
  if (totals.samples <= 0 || cost.macs_in_full <= 0)
    return absl::InvalidArgumentError("no sample was trained");
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName recipe, ParseRecipeName(setup.settings.recipe));
  RUNNEL_ASSIGN_OR_RETURN(const SampleMacs macs, SampleMacsOf(setup.model));
  const double in_full = cost.macs_in_full / cost.samples * static_cast<double>(totals.samples);
  GateSummary summary;
  summary.samples = totals.samples;
  summary.done_share = totals.macs_done / in_full;
  summary.effective_share = totals.effective_macs / in_full;
  RUNNEL_ASSIGN_OR_RETURN(summary.gates, GatesOf(setup.model, totals));
  AddEffective(macs, recipe, setup.model, summary.gates);
  for (const GateSummary::Gate& gate : summary.gates)
    summary.skipped_share += gate.skipped_share / static_cast<double>(summary.gates.size());
  summary.targets = TargetsOf(setting, totals.levels);
  return summary;
}

}  // namespace runnel
