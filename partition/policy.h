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
  LinkSecondsFn link_seconds;          // may be null likewise
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

// The source of the times that a policy plans from.
enum class PlanBasis : uint8_t {
  kNothing,      // no times
  kAnyTimes,     // times of each device, measured, or predicted on request
  kMeasured,     // times of each device, measured layers only
  kPredicted,    // times of each device from a latency predictor
  kFirstDevice,  // times of the first device; the others by the times of their stages
};

struct PolicyRow {
  absl::string_view name;
  absl::string_view summary;
  PlanBasis basis;
  bool replans;  // true: plans anew at barriers unless told not to
  // Leaves devices out and chooses codecs link by link; there may be more devices than layers.
  bool chooses_devices;
  // InvalidArgument if there is no device, no layer, or a device more than layers.
  absl::StatusOr<Partition> (*plan)(const PartitionRequest& request);
  // Makes later plans from the current cut, given as each stage's last layer, for a policy that
  // measures the current plan; `plan` makes the first one. A later plan is taken as soon as it
  // differs, without weighing the cost of moving. Errors as `plan`. Null: plans do not depend on
  // the current one.
  absl::StatusOr<Partition> (*next)(const PartitionRequest& request,
                                    const std::vector<int>& held) = nullptr;
  // Defaults of --predictor, with which the policy is published, and of --bits; empty: none.
  absl::string_view predictor = "";
  absl::string_view bits = "";

  // Whether central measures layers before it plans.
  bool needs_profile() const { return basis != PlanBasis::kNothing; }
};

// The table, policies/builtin_policies.cc: uniform, dp (AccEPT eq. 9-10 with both ways of a link as
// they are), accept and ftpipehd (as published), accept_measured (accept with times that are
// right), ftpipehd+ (ftpipehd where all devices were measured), runnel, brute_force (the oracle of
// dp; refuses more than 2,000,000 cuts).
absl::Span<const PolicyRow> BuiltinPolicies();
// InvalidArgument lists what there is.
absl::StatusOr<const PolicyRow*> FindPolicy(absl::string_view name);
std::vector<std::string> PolicyNames();

}  // namespace runnel
