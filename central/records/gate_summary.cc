#include "central/records/gate_summary.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/records/gate_json.h"

namespace runnel {

Json ToJson(const PassMacs& macs) {
  return Json{{"forward", macs.forward},
              {"input_gradient", macs.input_gradient},
              {"weight_gradient", macs.weight_gradient}};
}

Json ToJson(const std::vector<GateSummary::Gate>& gates) {
  Json rows = Json::array();
  for (const GateSummary::Gate& gate : gates) {
    Json row{{"layer", gate.layer},
             {"options", gate.options},
             {"samples", gate.samples},
             {"skipped_share", gate.skipped_share},
             {"mean_bits", gate.mean_bits}};
    for (const PassMacs& macs : gate.effective) row["effective_macs"].push_back(ToJson(macs));
    rows.push_back(std::move(row));
  }
  return rows;
}

Json ToJson(const std::vector<GateSummary::Target>& targets) {
  Json rows = Json::array();
  for (const GateSummary::Target& target : targets) {
    rows.push_back(Json{{"percent", target.percent},
                        {"samples", target.samples},
                        {"mean_percent", target.mean_percent},
                        {"last_percent", target.last_percent}});
  }
  return rows;
}

Json ToJson(const GateSummary& gates) {
  Json json{{"samples", gates.samples},
            {"done_share", gates.done_share},
            {"effective_share", gates.effective_share},
            {"skipped_share", gates.skipped_share},
            {"layers", ToJson(gates.gates)}};
  if (gates.targets.empty()) return json;
  json["cost_targets"] = ToJson(gates.targets);
  json["turns"] = gates.turns;
  return json;
}

std::string GateText(const GateSummary& gates) {
  std::string text = absl::StrFormat(
      "gates did %.1f %% of the multiply-adds (%.2f %% by bits), exploring included; samples "
      "skipped %.1f %% of the blocks",
      100 * gates.done_share, 100 * gates.effective_share, 100 * gates.skipped_share);
  for (const GateSummary::Target& target : gates.targets) {
    if (target.samples == 0) continue;
    absl::StrAppendFormat(&text, "; cost %.2f %% at the end of target %g %%", target.last_percent,
                          target.percent);
  }
  return text;
}

}  // namespace runnel
