#pragma once

// `plan --what-if`: another plan under an assumption, beside the one that holds, from the same
// measured times. Nothing is done.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/measured/measured_cluster.h"
#include "central/planning/planning_inputs.h"
#include "central/records/journal.h"

namespace runnel {

// One assumption: "leave:NAME" (a device is gone; not the first one, which has the data),
// "add:NAME=DEVICE" (one more like that one, on links like its), "add:NAME=FILE.profile" (one more
// as fast as that measured configuration, on links like the last device's), "mbps:X" (every link
// carries X), "link:NAME,NAME:X" (the link between two devices carries X). InvalidArgument for any
// other text, a name that is none of a usable device, or a bandwidth that is not above 0.
struct Assumption {
  std::string text;
  std::optional<int> leaves = {};  // device number
  std::vector<AssumedLink> links = {};
  struct Added {
    std::string name;
    int like = 0;              // device number: its links, and its times if profile is empty
    std::string profile = {};  // path
  };
  std::optional<Added> added = {};
};
absl::StatusOr<Assumption> ParseAssumption(const std::string& text,
                                           const std::vector<JournalDevice>& devices,
                                           const std::vector<bool>& usable);

// `known`: what is known of the devices beside `decided`'s times: links, memory, costs; at least as
// many devices as `decided` has. usable: by device number, whether plans may use it. A bandwidth of an
// assumption has the headers of packets in it, as a number for --links.
// A line for people about the plan under the assumption: stages, seconds a micro-batch and samples
// a second, and by how much that differs from `decided`, which was made from `inputs`.
// FailedPrecondition if nothing was measured (a policy without profile). InvalidArgument or NotFound:
// a profile that cannot be read, or does not have the model.
absl::StatusOr<std::string> WhatIf(const PlanningInputs& inputs, const PlanDecided& decided,
                                   const MeasuredCluster& known, const std::vector<bool>& usable,
                                   const Assumption& assumption);

}  // namespace runnel
