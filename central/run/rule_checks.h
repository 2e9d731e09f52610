#pragma once

// Whether the settings of rules that turn dials fit the run: recipe, model and barriers. Pure
// functions; any thread. InvalidArgument names the flag and the fault.

#include "absl/status/status.h"
#include "central/settings/run_settings.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

absl::Status CheckGradientBitsRule(const RunSettings& settings);
// Bits that the recipe has.
absl::Status CheckPrecision(const RunSettings& settings);
// Targets that the gates of the model, as it is trained, can keep.
absl::Status CheckCostTarget(const RunSettings& settings, const ModelSpec& model);

}  // namespace runnel
