#pragma once

// The first layers of a trained model on samples: what learning from latents keeps in place of
// images (central/run/sessions).

#include "absl/status/status.h"
#include "kernels/backends/backend.h"
#include "proto/inference.pb.h"

namespace runnel {

// Evaluates the front batch by batch, each sample once. A model in integers (recipe
// kInt8Inference) gives its outputs. InvalidArgument: samples, state or layers do not fit the model, or
// another recipe of integers; Unimplemented: the backend cannot compute it.
absl::Status RunFrontJob(proto::RunFront& asked, const BackendSettings& settings,
                         proto::InferenceReply& reply);

}  // namespace runnel
