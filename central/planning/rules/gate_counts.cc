#include "central/planning/rules/gate_counts.h"

#include <algorithm>

#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

// Of all stages, since their plan holds.
GateTotals SumsOf(const std::vector<StageStatus>& stages) {
  GateTotals sums;
  sums.samples = stages.back().telemetry.loss_samples;
  for (const StageStatus& stage : stages) {
    sums.macs_done += stage.telemetry.macs_done;
    sums.effective_macs += stage.telemetry.effective_macs;
    for (const GateChoices& gate : stage.telemetry.gates) sums.choices[gate.layer] = gate.samples;
  }
  return sums;
}

// sums - before; what a worker says may have any size.
std::map<int, std::vector<int64_t>> Since(const std::map<int, std::vector<int64_t>>& before,
                                          std::map<int, std::vector<int64_t>> sums) {
  for (auto& [layer, samples] : sums) {
    const auto known = before.find(layer);
    if (known == before.end()) continue;
    for (size_t i = 0; i < std::min(samples.size(), known->second.size()); ++i)
      samples[i] -= known->second[i];
  }
  return sums;
}

}  // namespace

std::optional<ChangeTraining> GateCounts::AtBarrier(const BarrierReport& report) {
  if (report.stages.empty()) return std::nullopt;
  if (report.plan.generation != generation_) seen_ = GateTotals();
  generation_ = report.plan.generation;
  const GateTotals sums = SumsOf(report.stages);
  const int64_t samples = sums.samples - seen_.samples;
  if (samples <= 0) return std::nullopt;
  double percent = 0;
  for (const auto& [layer, of_layer] : Since(seen_.choices, sums.choices)) {
    percent += cost_.Percent(layer, of_layer);
    std::vector<int64_t>& total = totals_.choices[layer];
    total.resize(std::max(total.size(), of_layer.size()));
    for (size_t i = 0; i < of_layer.size(); ++i) total[i] += of_layer[i];
  }
  totals_.samples += samples;
  totals_.macs_done += sums.macs_done - seen_.macs_done;
  totals_.effective_macs += sums.effective_macs - seen_.effective_macs;
  seen_ = sums;
  const int64_t at =
      report.changes == nullptr ? 0 : CostLevelAt(target_, *report.changes, report.step - 1);
  if (totals_.levels.size() <= static_cast<size_t>(at))
    totals_.levels.resize(static_cast<size_t>(at) + 1);
  GateTotals::Level& level = totals_.levels[static_cast<size_t>(at)];
  level.samples += samples;
  level.percent_sum += percent * static_cast<double>(samples);
  level.last_percent = percent;
  return std::nullopt;
}

std::string GateCounts::State() const {
  Json choices = Json::array(), levels = Json::array();
  for (const auto& [layer, samples] : totals_.choices)
    choices.push_back(Json{{"layer", layer}, {"samples", samples}});
  for (const GateTotals::Level& level : totals_.levels)
    levels.push_back(Json{{"samples", level.samples},
                          {"percent_sum", level.percent_sum},
                          {"last_percent", level.last_percent}});
  return DumpJson(Json{{"samples", totals_.samples},
                       {"macs_done", totals_.macs_done},
                       {"effective_macs", totals_.effective_macs},
                       {"choices", std::move(choices)},
                       {"levels", std::move(levels)}});
}

absl::StatusOr<GateTotals> ParseGateTotals(absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(state));
  GateTotals totals;
  JsonObject object(json, "gates");
  object.Read("samples", totals.samples).Read("macs_done", totals.macs_done);
  object.Read("effective_macs", totals.effective_macs);
  for (const Json& one : object.Array("choices")) {
    JsonObject choice(one, "choices");
    int32_t layer = 0;
    std::vector<int64_t> samples;
    choice.Read("layer", layer).Read("samples", samples);
    RUNNEL_RETURN_IF_ERROR(choice.Finish());
    totals.choices[layer] = std::move(samples);
  }
  for (const Json& one : object.Array("levels")) {
    JsonObject read(one, "levels");
    GateTotals::Level level;
    read.Read("samples", level.samples).Read("percent_sum", level.percent_sum);
    read.Read("last_percent", level.last_percent);
    RUNNEL_RETURN_IF_ERROR(read.Finish());
    totals.levels.push_back(level);
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return totals;
}

absl::Status GateCounts::Restore(absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(totals_, ParseGateTotals(state));
  return absl::OkStatus();
}

}  // namespace runnel
