#include "partition/export/onnx_nodes.h"

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

onnx::AttributeProto& AddAttribute(onnx::NodeProto& node, const char* name,
                                   onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

}  // namespace

void SetInts(onnx::NodeProto& node, const char* name, absl::Span<const int64_t> values) {
  onnx::AttributeProto& attribute = AddAttribute(node, name, onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
}

void SetInt(onnx::NodeProto& node, const char* name, int64_t value) {
  AddAttribute(node, name, onnx::AttributeProto::INT).set_i(value);
}

void SetFloat(onnx::NodeProto& node, const char* name, double value) {
  AddAttribute(node, name, onnx::AttributeProto::FLOAT).set_f(static_cast<float>(value));
}

onnx::NodeProto& NodeWriter::Add(const char* type, const std::string& name,
                                 const std::vector<std::string>& inputs) {
  onnx::NodeProto& node = *graph_.add_node();
  node.set_op_type(type);
  node.set_name(name);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(absl::StrCat(name, ".out"));
  return node;
}

std::string NodeWriter::Value(const char* type, const std::string& name,
                              const std::vector<std::string>& inputs) {
  return Add(type, name, inputs).output(0);
}

std::string NodeWriter::Scalar(const std::string& name, double value) {
  onnx::TensorProto& written = *graph_.add_initializer();
  written.set_name(name);
  written.set_data_type(onnx::TensorProto::FLOAT);
  written.add_float_data(static_cast<float>(value));
  return name;
}

std::string NodeWriter::Ints(const std::string& name, absl::Span<const int64_t> values) {
  onnx::TensorProto& written = *graph_.add_initializer();
  written.set_name(name);
  written.set_data_type(onnx::TensorProto::INT64);
  written.add_dims(static_cast<int64_t>(values.size()));
  for (const int64_t value : values) written.add_int64_data(value);
  return name;
}

}  // namespace runnel
