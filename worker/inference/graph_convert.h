#pragma once

// An INT8 graph as message QuantizedGraph (proto/inference.proto) and back. Pure functions.

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/inference/int8_graph.h"

namespace runnel {

std::string SerializeGraph(const inference::Int8Graph& graph);

// Checked (CheckAndInfer). InvalidArgument says what is wrong, in one line; no more is allocated
// than a small multiple of the bytes.
absl::StatusOr<inference::Int8Graph> ParseGraph(absl::string_view bytes);

}  // namespace runnel
