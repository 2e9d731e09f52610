#pragma once

// Which codecs devices are asked to time, so that plans know what coding takes of each of them.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/planning/planning_inputs.h"

namespace runnel {

// One a direction, each once: where bits follow the links the family's codec of 4 bits, else the
// last one of the run. InvalidArgument for a family that is not known.
absl::StatusOr<std::vector<std::string>> CodecsToTime(const CodecInputs& codecs);

}  // namespace runnel
