#pragma once

// The nodes of an ONNX graph that have weights, as operators of ours. For onnx_graph.cc.

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_graph.h"
#include "partition/import/onnx_values.h"
#include "partition/import/onnx_windows.h"

namespace runnel::import {

// The graph's constants by name.
using Constants = std::map<std::string, Constant>;

// Null: the node has no such input, or it is no constant.
const Constant* FindConstant(const Constants& constants, const onnx::NodeProto& node, int input);

// Operator, weights and name; inputs and output are the caller's. InvalidArgument: a weight that is
// no constant, of another rank, attributes that are not supported.
//
// of_vector: the node reads (batch, channels), or what has one position, which is the same: a 1x1
// convolution of it is linear.
absl::StatusOr<FlatOp> ReadConv(const onnx::NodeProto& node, const Constants& constants,
                                const WindowInput& input, bool of_vector);
// Gemm with the weight as it is or transposed, MatMul with a constant on the right.
absl::StatusOr<FlatOp> ReadLinear(const onnx::NodeProto& node, const Constants& constants);
absl::StatusOr<FlatOp> ReadBatchNorm(const onnx::NodeProto& node, const Constants& constants);

// Of a linear operator.
void SetBias(FlatOp& op, Constant bias);

}  // namespace runnel::import
