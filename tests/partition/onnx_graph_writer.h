#pragma once

// Graphs of ONNX written by hand, as exporters do.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_model.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// By value: which layers there are may differ.
std::vector<std::string> Tensors(const ModelState& state);

// Of one sample of 2 x 4 x 4, input "x".
class OnnxGraphWriter {
 public:
  OnnxGraphWriter();

  onnx::GraphProto& graph() { return *model_.mutable_graph(); }
  // Values 0, 1/8, 2/8, ...
  void Weight(const std::string& name, const std::vector<int64_t>& dims, bool is_int = false);
  void Numbers(const std::string& name, const std::vector<int64_t>& values);
  onnx::NodeProto& Node(const std::string& type, const std::vector<std::string>& inputs,
                        const std::string& output);
  void Ints(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values);
  void Output(const std::string& name) { graph().add_output()->set_name(name); }
  absl::StatusOr<OnnxModel> Read() const { return ModelFromOnnx(model_.SerializeAsString()); }
  std::string Refusal() const { return std::string(Read().status().message()); }
  std::string bytes() const { return model_.SerializeAsString(); }

 private:
  onnx::ModelProto model_;
};

}  // namespace runnel
