#include "partition/export/onnx_nodes.h"

#include <utility>

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

void SetValue(onnx::ValueInfoProto& value, const char* name, onnx::TensorProto::DataType elements,
              absl::Span<const int64_t> dims, int64_t batch) {
  value.set_name(name);
  onnx::TypeProto::Tensor& type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(elements);
  onnx::TensorShapeProto::Dimension& first = *type.mutable_shape()->add_dim();
  if (batch > 0) {
    first.set_dim_value(batch);
  } else {
    first.set_dim_param("batch");
  }
  for (const int64_t dim : dims) type.mutable_shape()->add_dim()->set_dim_value(dim);
}

absl::StatusOr<std::string> Serialized(const onnx::ModelProto& model) {
  std::string bytes;
  if (model.SerializeToString(&bytes)) return bytes;
  return absl::InvalidArgumentError("the model is larger than the 2 GiB that a file of ONNX holds");
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

onnx::TensorProto& NodeWriter::Constant(const std::string& name,
                                        onnx::TensorProto::DataType elements,
                                        absl::Span<const int64_t> dims) {
  onnx::TensorProto& written = *graph_.add_initializer();
  written.set_name(name);
  written.set_data_type(elements);
  for (const int64_t dim : dims) written.add_dims(dim);
  return written;
}

std::string NodeWriter::Scalar(const std::string& name, double value) {
  Constant(name, onnx::TensorProto::FLOAT, {}).add_float_data(static_cast<float>(value));
  return name;
}

std::string NodeWriter::Ints(const std::string& name, absl::Span<const int64_t> values) {
  onnx::TensorProto& written =
      Constant(name, onnx::TensorProto::INT64, {static_cast<int64_t>(values.size())});
  for (const int64_t value : values) written.add_int64_data(value);
  return name;
}

std::string NodeWriter::Floats(const std::string& name, absl::Span<const float> values,
                               absl::Span<const int64_t> dims) {
  const int64_t count[] = {static_cast<int64_t>(values.size())};
  onnx::TensorProto& written =
      Constant(name, onnx::TensorProto::FLOAT, dims.empty() ? absl::MakeConstSpan(count) : dims);
  written.set_raw_data(values.data(), values.size() * sizeof(float));
  return name;
}

std::string NodeWriter::Words(const std::string& name, absl::Span<const int32_t> values) {
  onnx::TensorProto& written =
      Constant(name, onnx::TensorProto::INT32, {static_cast<int64_t>(values.size())});
  written.set_raw_data(values.data(), values.size() * sizeof(int32_t));
  return name;
}

std::string NodeWriter::Bytes(const std::string& name, absl::Span<const int64_t> dims,
                              absl::Span<const int32_t> values) {
  std::string bytes;
  for (const int32_t value : values) bytes.push_back(static_cast<char>(value));
  return RawBytes(name, dims, std::move(bytes));
}

std::string NodeWriter::RawBytes(const std::string& name, absl::Span<const int64_t> dims,
                                 std::string values) {
  Constant(name, onnx::TensorProto::INT8, dims).set_raw_data(std::move(values));
  return name;
}

}  // namespace runnel
