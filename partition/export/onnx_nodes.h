#pragma once

// Nodes, attributes and constants of a graph of ONNX that is written.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"

namespace runnel {

void SetInts(onnx::NodeProto& node, const char* name, absl::Span<const int64_t> values);
void SetInt(onnx::NodeProto& node, const char* name, int64_t value);
void SetFloat(onnx::NodeProto& node, const char* name, double value);

// A value of the graph's border, (batch, dims...). batch: 0: any, by the name "batch".
void SetValue(onnx::ValueInfoProto& value, const char* name, onnx::TensorProto::DataType elements,
              absl::Span<const int64_t> dims, int64_t batch);

// InvalidArgument: over protobuf's 2 GiB.
absl::StatusOr<std::string> Serialized(const onnx::ModelProto& model);

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
  // dims: none: a list.
  std::string Floats(const std::string& name, absl::Span<const float> values,
                     absl::Span<const int64_t> dims = {});
  std::string Words(const std::string& name, absl::Span<const int32_t> values);
  // int8; dims: none: a number.
  std::string Bytes(const std::string& name, absl::Span<const int64_t> dims,
                    absl::Span<const int32_t> values);
  std::string RawBytes(const std::string& name, absl::Span<const int64_t> dims, std::string values);
  onnx::GraphProto& graph() { return graph_; }

 private:
  onnx::TensorProto& Constant(const std::string& name, onnx::TensorProto::DataType elements,
                              absl::Span<const int64_t> dims);

  onnx::GraphProto& graph_;
};

}  // namespace runnel
