#pragma once

// `--predictor`: plans are made from times that are predicted from ten sub-models a device
// (AccEPT 3.2).

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "predictor/run/predictor_row.h"
#include "predictor/run/run_predictor.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

// The row `predictor` (--predictor) for a model at this micro-batch size, with the devices whose
// profiles are in `folder` (--predictor-profiles) as known beforehand, and its network of there. An
// empty folder name, or no profile of the model: nothing is known, a cold start. Errors name the
// flag, the folder, file or profile, and the fix.
absl::StatusOr<RunPredictor> MakeRunPredictor(const ModelSpec& model, int64_t micro_batch_size,
                                              const std::string& predictor,
                                              const std::string& folder);

// The row's network for a model, from the folder. NotFound: it is not there, the message tells how
// to make it. InvalidArgument names the file and the damage.
absl::StatusOr<PredictorNetwork> LoadNetwork(const PredictorRow& row, const std::string& model,
                                             const std::string& folder);

}  // namespace runnel
