#include "proto/base/plan/plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace runnel {

std::vector<PlanSeat> Plan::seats() const {
  std::vector<PlanSeat> all;
  for (size_t i = 0; i < stages.size(); ++i) {
    for (const Seat& seat : stages[i].seats) all.push_back({i, seat.device.value()});
  }
  return all;
}

std::vector<int> Plan::devices() const {
  std::vector<int> numbers;
  for (const PlanSeat& seat : seats()) numbers.push_back(seat.device);
  return numbers;
}

std::vector<int> Plan::sole_devices() const {
  std::vector<int> numbers;
  for (const StagePlan& stage : stages) numbers.push_back(stage.sole_device());
  return numbers;
}

std::optional<size_t> Plan::StageOf(int device) const {
  for (const PlanSeat& seat : seats()) {
    if (seat.device == device) return seat.stage;
  }
  return std::nullopt;
}

absl::Status CheckPlan(const Plan& plan, const ModelSpec& model) {
  if (plan.stages.empty()) return absl::InvalidArgumentError("plan: has no stage");
  if (plan.links.size() + 1 != plan.stages.size()) {
    return absl::InvalidArgumentError(absl::StrCat("plan: ", plan.stages.size(), " stages need ",
                                                   plan.stages.size() - 1, " links, not ",
                                                   plan.links.size()));
  }
  int next_layer = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    if (stage.seats.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat("plan: stage ", i, " has ", stage.seats.size(),
                                                     " seats, must have 1: one device"));
    }
    if (stage.first_layer != next_layer || stage.last_layer < stage.first_layer) {
      return absl::InvalidArgumentError(absl::StrCat("plan: stage ", i, " has layers ",
                                                     stage.first_layer, "-", stage.last_layer,
                                                     ", should begin with layer ", next_layer));
    }
    if (stage.cap < 1 || (i > 0 && stage.cap > plan.stages[i - 1].cap)) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan: cap ", stage.cap, " of stage ", i,
                       " must be at least 1 and no larger than the one before"));
    }
    if (stage.deferred_weight_gradients < 0) {
      return absl::InvalidArgumentError(absl::StrCat("plan: stage ", i, " defers ",
                                                     stage.deferred_weight_gradients,
                                                     " weight-gradients, must be at least 0"));
    }
    next_layer = stage.last_layer + 1;
  }
  if (next_layer != model.layer_count()) {
    return absl::InvalidArgumentError(absl::StrCat("plan: covers ", next_layer, " of the ",
                                                   model.layer_count(), " layers of ", model.name));
  }
  return absl::OkStatus();
}

ModelSpec WithRecompute(ModelSpec model, const Plan& plan) {
  for (const StagePlan& stage : plan.stages) {
    if (!stage.recompute) continue;
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer)
      model.layers[static_cast<size_t>(layer)].recompute = true;
  }
  return model;
}

std::string ToString(const Plan& plan, const ModelSpec& model,
                     absl::Span<const std::string> device_names) {
  std::string text;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    const auto name = [device_names](std::string* out, const Seat& seat) {
      const auto number = static_cast<size_t>(seat.device.value());
      absl::StrAppend(out, number < device_names.size() ? device_names[number]
                                                        : absl::StrCat("device ", number));
    };
    absl::StrAppend(&text, i == 0 ? "" : "\n", "stage ", i, ": ",
                    absl::StrJoin(stage.seats, ", ", name), ", layers ", stage.first_layer, "-",
                    stage.last_layer, " (", model.layers[stage.first_layer].name, "..",
                    model.layers[stage.last_layer].name, "), cap ", stage.cap);
    if (stage.deferred_weight_gradients > 0) {
      absl::StrAppend(&text, ", ", stage.deferred_weight_gradients, " weight-gradients deferred");
    }
    if (stage.recompute) absl::StrAppend(&text, ", made again in the backward for want of memory");
    if (i < plan.links.size()) {
      absl::StrAppend(&text, ", then ", plan.links[i].codec_forward.text(), " forward and ",
                      plan.links[i].codec_backward.text(), " backward");
    }
  }
  return text;
}

}  // namespace runnel
