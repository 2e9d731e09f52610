#pragma once

// What central and workers agree on for stages of a model in integers (`eval --quantized`). Such a
// stage evaluates and does not train: wherever a message names a training recipe, it has this name.
//
// The state of a layer is one tensor, kNodesTensor (u8): a serialized runnel.proto.QuantizedGraph
// with the layer's nodes, a slice as kernels/models/graph/int8_graph.h says. A boundary tensor
// is the codes of the value that crosses, with exponent 0: codec int8 sends them as they are.

#include "absl/strings/string_view.h"
#include "proto/base/model/number_format.h"
#include "proto/base/tensor/dtype.h"

namespace runnel {

inline constexpr absl::string_view kInt8Inference = "int8_inference";
inline constexpr absl::string_view kNodesTensor = "nodes";
inline constexpr NumberFormat kInt8InferenceNumbers = {.activation = DType::kInt8,
                                                       .parameter = DType::kInt8,
                                                       .weight = DType::kInt8,
                                                       .error = DType::kInt8,
                                                       .weight_gradient = DType::kInt32};

}  // namespace runnel
