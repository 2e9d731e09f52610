#pragma once

// Nodes of an ONNX graph that compute numbers of other numbers, without a sample: shapes that a
// reshape reads, weights that are turned. For onnx_graph.cc.

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_values.h"

namespace runnel::import {

// What the node makes of its constant inputs (null: one that is left out). Cast, Unsqueeze, Squeeze,
// Reshape, ConstantOfShape; Concat, Gather, Slice, Add, Sub, Mul and Div of lists; Transpose of a
// matrix. InvalidArgument: another
// operator, or shapes that are none of these.
absl::StatusOr<Constant> Fold(const onnx::NodeProto& node,
                              absl::Span<const Constant* const> inputs);

// (rows, columns) -> (columns, rows).
Constant TransposedMatrix(const Constant& matrix);

}  // namespace runnel::import
