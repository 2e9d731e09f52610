#pragma once

// Nodes of an ONNX graph that see a value by itself, and what may stand right behind an operator. For
// onnx_graph.cc.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_weights.h"

namespace runnel::import {

// ReLU or ReLU6. InvalidArgument: other limits.
absl::StatusOr<OpKind> ReadClip(const onnx::NodeProto& node, const Constants& constants);
// Of HardSigmoid and HardSwish. InvalidArgument: other constants than ours.
absl::Status CheckHardSigmoid(const onnx::NodeProto& node);
// Of a ReduceMean of a value of `rank` axes. InvalidArgument: not over all behind the channels.
absl::Status CheckMean(const onnx::NodeProto& node, const Constants& constants, int rank);
// A Gather of a table's rows by the samples. InvalidArgument: of something else.
absl::StatusOr<FlatOp> ReadEmbedding(const onnx::NodeProto& node, const Constants& constants,
                                     bool of_tokens);
// Makes a constant that is added right behind the operator part of it: a linear one's bias, an
// embedding's positions, a norm's shift. False: it is none.
bool AddConstantTo(FlatOp& op, const Constant& added);

}  // namespace runnel::import
