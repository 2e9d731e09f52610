#pragma once

// Nodes, attributes and constants of a graph of ONNX that is written.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "onnx/onnx_pb.h"

namespace runnel {

void SetInts(onnx::NodeProto& node, const char* name, absl::Span<const int64_t> values);
void SetInt(onnx::NodeProto& node, const char* name, int64_t value);
void SetFloat(onnx::NodeProto& node, const char* name, double value);

class NodeWriter {
 public:
  // `graph` outlives this.
  explicit NodeWriter(onnx::GraphProto& graph) : graph_(graph) {}

  // A node with one output, NAME.out.
  onnx::NodeProto& Add(const char* type, const std::string& name,
                       const std::vector<std::string>& inputs);
  // One without attributes: gives its output.
  std::string Value(const char* type, const std::string& name,
                    const std::vector<std::string>& inputs);
  // Constants; give their name.
  std::string Scalar(const std::string& name, double value);
  std::string Ints(const std::string& name, absl::Span<const int64_t> values);
  onnx::GraphProto& graph() { return graph_; }

 private:
  onnx::GraphProto& graph_;
};

}  // namespace runnel
