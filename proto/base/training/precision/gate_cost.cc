#include "proto/base/training/precision/gate_cost.h"

#include "proto/base/status_macros.h"
#include "proto/base/training/precision/gate_options.h"
#include "proto/base/training/precision/precision_cost.h"

namespace runnel {

absl::StatusOr<GateCost> GateCost::Of(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(const SampleMacs macs, SampleMacsOf(model));
  const auto forward = [](const SampleMacs::Gated& gated) {
    double sum = 0;
    for (const SiteMacs& site : gated.macs) sum += site.macs.forward;
    return sum;
  };
  double all = 0;
  for (const SampleMacs::Gated& gated : macs.gated) all += forward(gated);
  GateCost cost;
  for (const SampleMacs::Gated& gated : macs.gated) {
    const double percent = all > 0 ? 100 * forward(gated) / all : 0;
    cost.gates_[gated.layer] = {gated.gate, percent};
    cost.least_percent_ += percent * CostOfOption(gated.gate, 0);
    cost.most_percent_ += percent * CostOfOption(gated.gate, OptionCount(gated.gate) - 1);
    cost.learns_ = cost.learns_ || !gated.gate.held;
  }
  return cost;
}

double GateCost::Percent(int layer, absl::Span<const int64_t> samples) const {
  const auto gate = gates_.find(layer);
  if (gate == gates_.end()) return 0;
  double sum = 0, count = 0;
  for (size_t option = 0; option < samples.size(); ++option) {
    const auto of_option = static_cast<double>(samples[option]);
    sum += of_option * CostOfOption(gate->second.spec, static_cast<int>(option));
    count += of_option;
  }
  return count > 0 ? gate->second.percent * sum / count : 0;
}

}  // namespace runnel
