#include "worker/stage/counts/gate_costs.h"

#include <cstring>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/base/training/precision/gate_options.h"

namespace runnel {

absl::StatusOr<std::unique_ptr<GateCosts>> GateCosts::Create(const ModelSpec& model,
                                                             int first_layer, int last_layer,
                                                             const TrainingSettings& training,
                                                             const NumberFormat& numbers) {
  RUNNEL_ASSIGN_OR_RETURN(GateCost cost, GateCost::Of(model));
  RUNNEL_ASSIGN_OR_RETURN(CostTargetSetting target, ParseCostTarget(training.cost_target));
  std::unique_ptr<GateCosts> costs(
      new GateCosts(std::move(cost), std::move(target), numbers, first_layer > 0));
  for (int layer = first_layer; layer <= last_layer; ++layer) {
    for (const OpSpec& op : model.layers[static_cast<size_t>(layer)].ops) {
      if (op.kind != OpKind::kGate) continue;
      costs->counted_.push_back(
          {layer, std::vector<std::atomic<int64_t>>(static_cast<size_t>(OptionCount(op)))});
    }
  }
  return costs;
}

std::byte* GateCosts::At(const SideValue& row, Direction direction, absl::Span<std::byte> tensor,
                         const Shape& shape) const {
  if (!has_target()) return nullptr;
  for (const SidePlace& place : SidePlaces(numbers_, shape, direction)) {
    if (place.value->name == row.name) return tensor.data() + place.memory_offset;
  }
  return nullptr;
}

void GateCosts::Begin(absl::Span<const std::byte> input, const Shape& shape, bool counts) {
  counts_ = counts;
  percent_ = 0;
  if (!has_input_) return;
  const absl::Span<std::byte> bytes(const_cast<std::byte*>(input.data()), input.size());
  const std::byte* at = At(kGateCost, Direction::kForward, bytes, shape);
  if (at != nullptr) std::memcpy(&percent_, at, sizeof(percent_));
}

void GateCosts::AddChoice(const Instruction& gate, absl::Span<const int64_t> samples) {
  const double percent = static_cast<double>(percent_) + cost_.Percent(gate.layer, samples);
  percent_ = static_cast<float>(percent);
  if (!counts_) return;
  for (Counted& counted : counted_) {
    if (counted.layer != gate.layer) continue;
    for (size_t option = 0; option < counted.samples.size(); ++option)
      counted.samples[option] += samples[option];
  }
}

void GateCosts::WriteCost(absl::Span<std::byte> output, const Shape& shape) const {
  std::byte* at = At(kGateCost, Direction::kForward, output, shape);
  if (at != nullptr) std::memcpy(at, &percent_, sizeof(percent_));
}

int32_t GateCosts::Sign(const std::vector<TrainingChange>& changes, int64_t step) const {
  if (!has_target()) return 1;
  const auto level = static_cast<size_t>(CostLevelAt(target_, changes, step));
  return PriceSign(static_cast<double>(percent_), target_.percents[level]);
}

int32_t GateCosts::ReadSign(absl::Span<const std::byte> gradient, const Shape& shape) const {
  int32_t sign = 1;
  const absl::Span<std::byte> bytes(const_cast<std::byte*>(gradient.data()), gradient.size());
  const std::byte* at = At(kPriceSign, Direction::kBackward, bytes, shape);
  if (at != nullptr) std::memcpy(&sign, at, sizeof(sign));
  return sign;
}

void GateCosts::WriteSign(int32_t sign, absl::Span<std::byte> gradient, const Shape& shape) const {
  std::byte* at = At(kPriceSign, Direction::kBackward, gradient, shape);
  if (at != nullptr) std::memcpy(at, &sign, sizeof(sign));
}

void GateCosts::Fill(Telemetry& telemetry) const {
  telemetry.gates.clear();
  for (const Counted& counted : counted_)
    telemetry.gates.push_back({counted.layer, {counted.samples.begin(), counted.samples.end()}});
}

}  // namespace runnel
