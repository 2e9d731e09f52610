#pragma once

// The contract of a partitioning policy: layers onto an ordered list of devices. Pure: same
// request, same cut.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "partition/cost_model.h"
#include "partition/pipeline_model.h"

namespace runnel {

struct PartitionRequest {
  int layers = 0;                      // L
  int devices = 0;                     // N, in pipeline order; each gets at least one layer
  const CostModel* compute = nullptr;  // may be null for policies that do not look at cost
  LinkSecondsFn link_seconds;          // likewise
  // For policies that choose devices, codecs and caps; positions of devices as above. May be null.
  const PipelineModel* pipeline = nullptr;
};

// last_layer[i]: the last layer of stage i. last_layer.back() == layers - 1.
struct Partition {
  std::vector<int> last_layer;
  double bottleneck_seconds = 0;  // the policy's own objective; 0 if it has none
  // Of policies that choose them, else empty: the devices in order, one a stage (otherwise all as
  // given), caps by stage (otherwise the schedule's), and by link the position in
  // PipelineModel::codecs.
  std::vector<int> order;
  std::vector<int64_t> caps;
  std::vector<int> codecs;
};

struct PolicyRow {
  absl::string_view name;
  absl::string_view summary;
  bool needs_profile;  // true: central measures layers before it plans
  bool replans;        // true: plans anew at barriers unless told not to
  // InvalidArgument if there are more devices than layers, or none of one.
  absl::StatusOr<Partition> (*plan)(const PartitionRequest& request);
};

// The table, policies/builtin_policies.cc: uniform, dp (AccEPT eq. 9-10 with both ways of a link as
// they are), accept, ftpipehd (the published ones), runnel, brute_force (the oracle of dp; refuses
// more than 2,000,000 cuts).
absl::Span<const PolicyRow> BuiltinPolicies();
// InvalidArgument lists what there is.
absl::StatusOr<const PolicyRow*> FindPolicy(absl::string_view name);
std::vector<std::string> PolicyNames();

}  // namespace runnel
