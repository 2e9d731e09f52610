#pragma once

// A worker process on this host, started for one job about a model in integers: central has no
// kernels.

#include <string>

#include "absl/status/statusor.h"
#include "central/records/quantized_model.h"
#include "central/run/workers/local_workers.h"

namespace runnel {

// Starts `runnel-worker infer`, waits for its answer. Job and answer are files in memory: nothing
// is left behind, whatever ends. On the calling thread, which must live as long as the process.
// job: of QuantizeJob or ProfileJob. Errors: the worker's answer; NotFound: no worker binary;
// ResourceExhausted: no memory; Internal: it ended without an answer.
absl::StatusOr<InferenceReply> RunInferenceProcess(const std::string& job,
                                                   const LocalWorkerOptions& options);

}  // namespace runnel
