#pragma once

// What `runnel-worker infer` does: central starts it on its own host, hands it one InferenceJob
// (proto/inference.proto) as a file and reads one InferenceReply. It quantises a trained model from
// calibration samples, times the layers of a quantised one, runs the first layers of a trained one
// (front_run.h), or says which backends can train one (backend_fit.h).

#include <string>

#include "absl/status/status.h"
#include "kernels/backends/backend.h"

namespace runnel {

// Reads the job from a file and writes the reply to another one that is there; an error of the job
// is part of the reply. Errors name the file.
absl::Status RunInferenceJob(const std::string& job_path, const std::string& reply_path,
                             const BackendSettings& settings);

}  // namespace runnel
