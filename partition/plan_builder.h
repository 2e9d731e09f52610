#pragma once

// Makes a plan from a run's request: cuts the layers by a policy, takes the caps of a schedule and
// the codecs of the links. Pure.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "partition/cost_model.h"
#include "partition/noise_places.h"
#include "partition/noise_ratios.h"
#include "partition/pipeline_model.h"
#include "partition/policy.h"
#include "partition/schedule.h"
#include "proto/base/ids.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/number_format.h"
#include "proto/base/plan/plan.h"
#include "proto/base/tensor/encoded_bytes.h"
#include "proto/base/training/codecs/tensor_error.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {

// Codecs that a link may have. Sizes are of payloads, without frame headers.
struct CodecChoice {
  CodecSchedule forward;
  CodecSchedule backward;
  EncodedBytesFn encoded_forward;
  EncodedBytesFn encoded_backward;
  // Of each direction; NoisePlaces makes CodecCost::noise_behind of them.
  TensorError forward_error = {};
  TensorError backward_error = {};
  int lossy_directions = 0;    // CodecCost
  KeptBytesFn kept = nullptr;  // what each end keeps of samples
  // Of the sizes above, which are the most, what is expected on the link.
  double forward_share = 1;
  double backward_share = 1;
};

// model, policy and schedule are borrowed for the call.
struct PlanRequest {
  const ModelSpec* model = nullptr;
  const PolicyRow* policy = nullptr;
  const ScheduleRow* schedule = nullptr;
  std::vector<DeviceId> devices;  // in pipeline order, no device twice
  NumberFormat format = {};       // number format of the recipe: decides memory
  RecipeMemory recipe_memory;
  int64_t micro_batches = 1;     // M, micro-batches a step
  int64_t micro_batch_size = 1;  // samples of the largest micro-batch: what links are costed for
  int64_t short_step = 0;        // M of an epoch's last step where it has fewer; else 0
  int64_t dataset_samples = 0;   // of which links' ends keep something (CodecChoice::kept)
  CodecChoice codecs;            // its sizes may be null if the policy is not costed
  LinkSpeed link_speed;          // speed of every link, each way
  // Speeds by position in `devices`, [from][to], with the media that directions share, in place of
  // link_speed. Empty: all links alike.
  std::vector<std::vector<LinkSpeed>> link_speeds;
  // Optimizer steps from one barrier, at which the pipeline is empty, to the next, and how long
  // nothing runs there; 0: there is none.
  int64_t barrier_every = 0;
  double barrier_pause_seconds = 0;
  // State copies at barriers (its own and a neighbour's, assumed as large) that each device must
  // have room for in a pipeline of several stages.
  int64_t state_copies = 0;
  // Codecs that `runnel` may choose, the most exact first; empty: those above only.
  std::vector<CodecChoice> codec_choices;
  std::vector<DeviceCost> device_costs;  // by position in `devices`; empty: DeviceCost's defaults
  std::vector<double> host_processors;   // PipelineModel
  int64_t max_cap = 16;                  // largest cap that `runnel` may choose
  bool looks_ahead = false;              // PipelineModel
  bool raised_looks_ahead = false;
  double noise_budget = std::numeric_limits<double>::infinity();  // PipelineModel
  NoiseRatios noise_ratios;            // of the codecs' noise by the table
  const CostModel* compute = nullptr;  // may be null for policies without needs_profile
  std::vector<int64_t> caps;           // one a stage instead of the schedule's; empty: none
  // Last layer of each stage of the current plan, for policies whose next plan depends on it; stage
  // i is on devices[i]. Empty: this is the first plan.
  std::vector<int> held = {};
  Generation generation;
};

// Seconds on an idle link, by layer: (payload + frame header) / bandwidth + delay. The gradient that
// comes up has the shape of the activation that went down. InvalidArgument for a negative or
// non-finite bandwidth or delay, missing size functions, or a model without shapes.
absl::StatusOr<LinkSecondsFn> MakeLinkSeconds(const PlanRequest& request);

// Cost model of the request's pipeline, for `runnel` and the simulator. Memory of a layer:
// parameters, gradients, the optimizer's slots, the average's weights where they are averaged,
// statistics, and its operators' outputs, each in the recipe's format or as LayerSpec::stash and
// recompute say, or what KeptBytesWithCodes counts, and what RecipeMemory adds.
// InvalidArgument as MakeLinkSeconds, and where the numbers of costs, links and devices disagree.
absl::StatusOr<PipelineModel> MakePipelineModel(const PlanRequest& request);

// An existing plan in terms of the request's pipeline model. InvalidArgument if the plan names a
// device or a pair of codecs that the request does not have.
absl::StatusOr<Placement> PlacementOf(const PlanRequest& request, const PipelineModel& model,
                                      const Plan& plan);

// A plan, and the same in the terms of the request's pipeline model.
struct PlacedPlan {
  Plan plan;
  Placement placement;
};

// A plan that passes CheckPlan. Policies that choose devices leave some out and change the order.
// InvalidArgument names what does not fit and the fix: more devices than layers where the policy
// takes all of them, a device twice, M
// or the micro-batch size below 1, caps of the wrong number, below 1 or growing, a missing profile;
// and whatever the policy refuses.
absl::StatusOr<PlacedPlan> MakePlacedPlan(const PlanRequest& request);
absl::StatusOr<Plan> MakePlan(const PlanRequest& request);

}  // namespace runnel
