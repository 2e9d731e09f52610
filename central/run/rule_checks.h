#pragma once

// Whether settings of rules that turn dials, and the backend, fit what is trained: recipe, model and
// barriers. Pure functions; any thread. InvalidArgument names the flag and the fault.

#include "absl/status/status.h"
#include "central/settings/run_settings.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/number_format.h"

namespace runnel {

absl::Status CheckGradientBitsRule(const RunSettings& settings);
// Bits that the recipe has.
absl::Status CheckPrecision(const RunSettings& settings);
// Targets that the gates of the model, as it is trained, can keep.
absl::Status CheckCostTarget(const RunSettings& settings, const ModelSpec& model);
// Numbers that the one backend trains. Beside a processor that has floats, the DSP has products of
// codes alone of recipes with floats.
absl::Status CheckTrainingBackend(const RunSettings& settings, const NumberFormat& format);

}  // namespace runnel
