#pragma once

// The nodes of an ONNX graph as operators of ours, before they are cut into layers. For
// onnx_model.cc.

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_values.h"
#include "proto/base/model/model_spec.h"

namespace runnel::import {

struct FlatOp {
  OpSpec spec;                      // without inputs
  std::vector<std::string> inputs;  // values of the graph
  std::string output;
  std::string name;                          // of the node or its weight, for the layer
  std::map<TensorRole, Constant> constants;  // weights and statistics
};

struct FlatGraph {
  Shape input;  // of a sample
  std::string input_name;
  std::string output_name;
  std::vector<FlatOp> ops;  // in the order in which they can be computed
};

// InvalidArgument as ModelFromOnnx.
absl::StatusOr<FlatGraph> FlattenGraph(const onnx::GraphProto& graph);

}  // namespace runnel::import
