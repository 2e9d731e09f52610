#pragma once

// Plan <-> JSON, as the journal, the summary and the page show it. For .cc files of central only.

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/json/json_fields.h"
#include "proto/base/plan/plan.h"

namespace runnel {

// {"generation", "schedule", "drains_each_step",
//  "stages": [{"device", "first_layer", "last_layer", "cap", "deferred_weight_gradients"}, ...],
//  "links": [{"codec_forward", "codec_backward"}, ...]}
// A stage that defers no weight-gradient has no "deferred_weight_gradients"; one that makes its layers
// again in the backward has "recompute", true.
Json PlanToJson(const Plan& plan);

// InvalidArgument names the key that is missing, unknown or of the wrong type, layer ranges and
// caps that cannot be. Whether it fits a model is CheckPlan's to say.
absl::StatusOr<Plan> PlanFromJson(const Json& json);

// The "stages" of PlanToJson alone. With device_names, by device number, "device" is the name and
// "device_number" the number; without, "device" is the number.
Json StagesToJson(const Plan& plan, absl::Span<const std::string> device_names);

}  // namespace runnel
