#pragma once

// What `runnel-worker infer` does: central starts it on its own host, hands it one InferenceJob
// (proto/inference.proto) as a file and reads one InferenceReply. It quantises a trained model from
// calibration samples, or times the layers of a quantised one.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace runnel {

// The reply to a job, as bytes; an error of the job is part of it. threads >= 1.
std::string AnswerInferenceJob(absl::string_view job, int threads);

// Reads the job from a file and writes the reply to another one that is there. Errors name the
// file.
absl::Status RunInferenceJob(const std::string& job_path, const std::string& reply_path,
                             int threads);

}  // namespace runnel
