#pragma once

// Single nodes of an ONNX graph as operators of ours. InvalidArgument: why a node is none. For
// onnx_graph.cc.

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_draft.h"

namespace runnel::import {

// A node with at least one input and one output.
absl::Status AddOperator(const onnx::NodeProto& node, GraphDraft& draft);
absl::Status AddConstant(const onnx::NodeProto& node, GraphDraft& draft);
// A Shape node. Samples are seen one by one here: the batch is 1.
absl::Status AddShape(const onnx::NodeProto& node, GraphDraft& draft);

}  // namespace runnel::import
