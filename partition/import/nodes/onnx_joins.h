#pragma once

// Nodes of an ONNX graph that join several values, or take parts of one. InvalidArgument: why a node
// is none of ours. For onnx_graph.cc.

#include "absl/status/status.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_draft.h"

namespace runnel::import {

// Of two tensors; of an operator and a constant that is part of it: a linear one's bias, an
// embedding's positions, a norm's shift.
absl::Status AddSum(const onnx::NodeProto& node, GraphDraft& draft);
// Of two tensors, or of a tensor and a factor for each of its channels.
absl::Status AddProduct(const onnx::NodeProto& node, GraphDraft& draft);
// Two by two. What is joined already is read again: dense blocks join all that was before.
absl::Status AddConcat(const onnx::NodeProto& node, GraphDraft& draft);
absl::Status AddSplit(const onnx::NodeProto& node, GraphDraft& draft);
absl::Status AddSlice(const onnx::NodeProto& node, GraphDraft& draft);
// Whether a Reshape begins or ends a shuffle of channels; AddGroups reads those.
bool IsOfGroups(const onnx::NodeProto& node, GraphDraft& draft);
absl::Status AddGroups(const onnx::NodeProto& node, GraphDraft& draft);

}  // namespace runnel::import
