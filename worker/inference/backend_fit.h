#pragma once

// Which backends can train a model: each compiles the training's program and prepares it.

#include "absl/status/status.h"
#include "kernels/backends/backend.h"
#include "proto/inference.pb.h"

namespace runnel {

// A row for each of BuiltinBackends: it can, or the first reason why not (it is not here; what its traits
// or instructions lack). The whole model is one stage. InvalidArgument: the model or recipe is none.
absl::Status FitBackendsJob(const proto::FitBackends& asked, const BackendSettings& settings,
                            proto::InferenceReply& reply);

}  // namespace runnel
