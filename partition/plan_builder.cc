#include "partition/plan_builder.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::Status CheckRequest(const PlanRequest& request) {
  if (request.model == nullptr || request.policy == nullptr || request.schedule == nullptr) {
    return absl::InvalidArgumentError("plan: needs a model, a policy and a schedule");
  }
  if (request.micro_batches < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan: ", request.micro_batches, " micro-batches a step; needs at least 1"));
  }
  if (request.micro_batch_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "plan: micro-batches of ", request.micro_batch_size, " samples; needs at least 1"));
  }
  if (!request.caps.empty() && request.caps.size() != request.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("plan: ", request.caps.size(), " caps for ",
                                                   request.devices.size(),
                                                   " stages; give one cap a stage or none"));
  }
  std::set<DeviceId> seen;
  for (DeviceId device : request.devices) {
    if (!seen.insert(device).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan: device ", device.value(), " is listed twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Partition> Cut(const PlanRequest& request) {
  PartitionRequest cut;
  cut.layers = request.model->layer_count();
  cut.devices = static_cast<int>(request.devices.size());
  if (request.policy->needs_profile) {
    cut.compute = request.compute;
    RUNNEL_ASSIGN_OR_RETURN(cut.link_seconds, MakeLinkSeconds(request));
  }
  return request.policy->plan(cut);
}

}  // namespace

absl::StatusOr<LinkSecondsFn> MakeLinkSeconds(const PlanRequest& request) {
  const double megabits = request.link_megabits_per_second;
  const double delay = request.link_delay_seconds;
  if (!std::isfinite(megabits) || megabits < 0 || !std::isfinite(delay) || delay < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan: link of ", megabits, " Mbit/s and ", delay,
                     " s delay; both must be finite and at least 0 (0 Mbit/s: unlimited)"));
  }
  if (request.model == nullptr || !request.encoded_forward || !request.encoded_backward) {
    return absl::InvalidArgumentError("plan: link times need a model and the codecs' sizes");
  }
  RUNNEL_ASSIGN_OR_RETURN(std::vector<LayerInfo> infos,
                          InferShapes(*request.model, request.micro_batch_size));
  const auto seconds = [&](const EncodedBytesFn& encoded, const Shape& shape) {
    const double bytes = static_cast<double>(encoded(shape).value() + kFrameHeaderBytes);
    return delay + (megabits > 0 ? bytes * 8 / (megabits * 1e6) : 0);
  };
  std::vector<double> down;
  std::vector<double> up;
  for (const LayerInfo& info : infos) {
    down.push_back(seconds(request.encoded_forward, info.output));
    up.push_back(seconds(request.encoded_backward, info.output));
  }
  return [down = std::move(down), up = std::move(up)](int layer, int, bool is_up) {
    return is_up ? up[layer] : down[layer];
  };
}

absl::StatusOr<Plan> MakePlan(const PlanRequest& request) {
  RUNNEL_RETURN_IF_ERROR(CheckRequest(request));
  RUNNEL_ASSIGN_OR_RETURN(Partition partition, Cut(request));
  const int stages = static_cast<int>(request.devices.size());
  const std::vector<int64_t> caps =
      request.caps.empty() ? request.schedule->caps(stages, request.micro_batches) : request.caps;
  Plan plan;
  plan.generation = request.generation;
  plan.schedule = std::string(request.schedule->name);
  plan.drains_each_step = request.schedule->drains_each_step;
  int first = 0;
  for (int i = 0; i < stages; ++i) {
    plan.stages.push_back({request.devices[i], first, partition.last_layer[i], caps[i]});
    first = partition.last_layer[i] + 1;
  }
  plan.links.assign(stages - 1, {request.codec_forward, request.codec_backward});
  RUNNEL_RETURN_IF_ERROR(CheckPlan(plan, *request.model));
  return plan;
}

}  // namespace runnel
