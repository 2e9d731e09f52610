#pragma once

// Operators of models of tokens as nodes of ONNX. Values are (batch, positions, features).

#include <string>
#include <vector>

#include "partition/export/onnx_nodes.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

// The first opset with LayerNormalization, and its format.
inline constexpr int64_t kTokenOpset = 17;
inline constexpr int64_t kTokenIrVersion = 8;

// Whether the operator is written here: on values of this shape, its batch included.
bool IsOfTokens(const OpSpec& op, const Shape& read);

// inputs: what the operator reads, then its state in the order of TensorRole. The name of its value.
std::string AddTokenOp(const OpSpec& op, const Shape& read, const std::string& name,
                       const std::vector<std::string>& inputs, NodeWriter& nodes);

}  // namespace runnel
