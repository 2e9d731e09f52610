#pragma once

// `--cost predicted`: plans are made from times that are predicted from ten sub-models a device
// (AccEPT 3.2).

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "predictor/run/run_predictor.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

// The predictor of a model at this micro-batch size, with the devices whose profiles are in
// `folder` (--predictor-profiles) as known beforehand. An empty folder name, or no profile of the
// model: nothing is known, a cold start. Errors name the folder, file or profile.
absl::StatusOr<RunPredictor> MakeRunPredictor(const ModelSpec& model, int64_t micro_batch_size,
                                              const std::string& folder);

}  // namespace runnel
