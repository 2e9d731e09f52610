#pragma once

// Chooses the codecs that devices time, so that plans know the cost of coding on each device.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/planning_inputs.h"

namespace runnel {

// One codec a direction, each once: the family's codec of 4 bits if bits follow the links, else the
// last one of the run. InvalidArgument for an unknown family.
absl::StatusOr<std::vector<std::string>> CodecsToTime(const CodecInputs& codecs);

}  // namespace runnel
