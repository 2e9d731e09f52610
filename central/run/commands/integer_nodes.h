#pragma once

// A model in integers as the writer of ONNX takes it. Pure.

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "partition/export/quantized_onnx.h"

namespace runnel {

// graph: QuantizedModel::graph. InvalidArgument: it cannot be parsed, or a window or a factor of a
// node is none.
absl::StatusOr<std::vector<IntegerNode>> IntegerNodes(absl::string_view graph);

}  // namespace runnel
