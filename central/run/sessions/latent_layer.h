#pragma once

// Where a model is cut for learning from latents: the layers before it are frozen, those from it on
// train. Pure functions; any thread.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

// The number or the name of a layer that has others before it. InvalidArgument: there is none, or it
// is the first one.
absl::StatusOr<int> ParseLatentLayer(absl::string_view text, const ModelSpec& model);

// A line a layer: the latent that enters it and its bytes by type, then parameters and
// multiply-accumulates of one sample from this layer on. InvalidArgument as InferShapes.
absl::StatusOr<std::string> LayerTable(const ModelSpec& model);

// Layers [layer, end) as a model of its own, whose samples are the latents. InvalidArgument: some of
// them are frozen.
absl::StatusOr<ModelSpec> TailOf(const ModelSpec& model, int layer);

}  // namespace runnel
