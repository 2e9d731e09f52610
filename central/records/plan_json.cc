#include "central/records/plan_json.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kDeferred[] = "deferred_weight_gradients";
constexpr char kRecompute[] = "recompute";

absl::StatusOr<StagePlan> StageFromJson(const Json& json) {
  StagePlan stage;
  int32_t device = 0;
  JsonObject object(json, "plan stage");
  object.Read("device", device)
      .Read("first_layer", stage.first_layer)
      .Read("last_layer", stage.last_layer)
      .Read("cap", stage.cap);
  if (json.contains(kDeferred)) object.Read(kDeferred, stage.deferred_weight_gradients);
  if (json.contains(kRecompute)) object.Read(kRecompute, stage.recompute);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  stage.GiveTo(device);
  if (device < 0 || stage.first_layer < 0 || stage.last_layer < stage.first_layer ||
      stage.cap < 1 || stage.deferred_weight_gradients < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan stage: device ", device, ", layers ", stage.first_layer, "-",
                     stage.last_layer, ", cap ", stage.cap, ", ", stage.deferred_weight_gradients,
                     " deferred weight-gradients cannot be"));
  }
  return stage;
}

absl::StatusOr<LinkPlan> LinkFromJson(const Json& json) {
  LinkPlan link;
  JsonObject object(json, "plan link");
  object.Read("codec_forward", link.codec_forward).Read("codec_backward", link.codec_backward);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return link;
}

}  // namespace

Json StagesToJson(const Plan& plan, absl::Span<const std::string> device_names) {
  Json stages = Json::array();
  for (const StagePlan& stage : plan.stages) {
    Json& json = stages.emplace_back(Json{{"device", stage.sole_device()},
                                          {"first_layer", stage.first_layer},
                                          {"last_layer", stage.last_layer},
                                          {"cap", stage.cap}});
    const auto number = static_cast<size_t>(stage.sole_device());
    if (number < device_names.size()) {
      json["device"] = device_names[number];
      json["device_number"] = number;
    }
    if (stage.deferred_weight_gradients != 0) json[kDeferred] = stage.deferred_weight_gradients;
    if (stage.recompute) json[kRecompute] = true;
  }
  return stages;
}

Json PlanToJson(const Plan& plan) {
  Json links = Json::array();
  for (const LinkPlan& link : plan.links) {
    links.push_back(Json{{"codec_forward", link.codec_forward.text()},
                         {"codec_backward", link.codec_backward.text()}});
  }
  return Json{{"generation", plan.generation.value()},
              {"schedule", plan.schedule},
              {"drains_each_step", plan.drains_each_step},
              {"stages", StagesToJson(plan, {})},
              {"links", std::move(links)}};
}

absl::StatusOr<Plan> PlanFromJson(const Json& json) {
  Plan plan;
  int32_t generation = 0;
  JsonObject object(json, "plan");
  object.Read("generation", generation)
      .Read("schedule", plan.schedule)
      .Read("drains_each_step", plan.drains_each_step);
  for (const Json& stage : object.Array("stages")) {
    RUNNEL_ASSIGN_OR_RETURN(StagePlan read, StageFromJson(stage));
    plan.stages.push_back(std::move(read));
  }
  for (const Json& link : object.Array("links")) {
    RUNNEL_ASSIGN_OR_RETURN(LinkPlan read, LinkFromJson(link));
    plan.links.push_back(std::move(read));
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  plan.generation = Generation(generation);
  if (plan.stages.empty() || plan.links.size() + 1 != plan.stages.size()) {
    return absl::InvalidArgumentError(absl::StrCat("plan: ", plan.stages.size(), " stages and ",
                                                   plan.links.size(), " links do not fit"));
  }
  return plan;
}

}  // namespace runnel
