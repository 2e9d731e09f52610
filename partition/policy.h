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

// A policy's answer. placement.last_layer is always there and ends with layers - 1. A policy that
// does not choose devices, caps or codecs leaves those empty: all devices as given, the schedule's
// caps, the codecs that the user asked for.
struct Partition {
  Placement placement;
  double bottleneck_seconds = 0;  // the policy's own objective; 0 if it has none
};

struct PolicyRow {
  absl::string_view name;
  absl::string_view summary;
  bool needs_profile;  // true: central measures layers before it plans
  bool replans;        // true: plans anew at barriers unless told not to
  // Leaves devices out and chooses codecs link by link; there may be more devices than layers.
  bool chooses_devices;
  // InvalidArgument if there is no device, no layer, or a device more than layers.
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
