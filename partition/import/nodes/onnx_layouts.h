#pragma once

// Transformers compute as (positions, batch, features) what is (batch, positions, features) here:
// the same numbers, for operators that see each position's features by themselves. For
// onnx_graph.cc.

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_draft.h"

namespace runnel::import {

// That of the node's inputs. InvalidArgument: they lie differently.
absl::StatusOr<Layout> InputLayout(const onnx::NodeProto& node, const GraphDraft& draft);
// Takes a node that only changes the layout.
bool TakeLayoutChange(const onnx::NodeProto& node, GraphDraft& draft);
// InvalidArgument: the operator reads more than one position's features, and the layout is another
// than here.
absl::Status CheckLayout(const onnx::NodeProto& node, Layout layout);
// Sizes of a value that lies so. x: with a batch of 1.
std::vector<int64_t> SizesAs(Layout layout, const Shape& x);

}  // namespace runnel::import
