#pragma once

// `--cost predicted`: what a run plans by is predicted from ten sub-models a device (AccEPT 3.2).

#include "absl/status/statusor.h"
#include "central/planning/run_setup.h"
#include "predictor/run/run_predictor.h"

namespace runnel {

// The predictor of the setup's model, with the devices of --predictor-profiles as what is known
// beforehand; without the flag, or where no profile has the model, with nothing (a cold start).
// Errors name the folder, file or profile.
absl::StatusOr<RunPredictor> MakeRunPredictor(const RunSetup& setup);

}  // namespace runnel
