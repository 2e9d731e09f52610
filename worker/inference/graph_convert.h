#pragma once

// An INT8 graph as message QuantizedGraph (proto/inference.proto) and back. Pure functions.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/models/graph/int8_graph.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel {

std::string SerializeGraph(const inference::Int8Graph& graph);

// Checked (CheckAndInfer). InvalidArgument says what is wrong, in one line; no more is allocated
// than a small multiple of the bytes.
absl::StatusOr<inference::Int8Graph> ParseGraph(absl::string_view bytes);

// The graph of a stage with these layers of the model, from their states
// (proto/base/training/int8_inference.h). Checked, also that it takes and gives what the model's
// shapes say. InvalidArgument: as ParseGraph, naming the layer.
absl::StatusOr<inference::Int8Graph> GraphOfLayers(const ModelState& state, const ModelSpec& model,
                                                   int first_layer, int last_layer);

}  // namespace runnel
