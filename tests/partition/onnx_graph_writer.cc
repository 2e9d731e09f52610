#include "tests/partition/onnx_graph_writer.h"

namespace runnel {

std::vector<std::string> Tensors(const ModelState& state) {
  std::vector<std::string> bytes;
  for (const LayerState& layer : state.layers) {
    for (const TensorData& tensor : layer.tensors) bytes.push_back(tensor.bytes);
  }
  return bytes;
}

OnnxGraphWriter::OnnxGraphWriter() {
  onnx::ValueInfoProto& input = *graph().add_input();
  input.set_name("x");
  auto& shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
  shape.add_dim()->set_dim_param("n");
  for (const int dim : {2, 4, 4}) shape.add_dim()->set_dim_value(dim);
}

void OnnxGraphWriter::Weight(const std::string& name, const std::vector<int64_t>& dims,
                             bool is_int) {
  onnx::TensorProto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(is_int ? onnx::TensorProto::INT64 : onnx::TensorProto::FLOAT);
  int64_t count = 1;
  for (const int64_t dim : dims) {
    tensor.add_dims(dim);
    count *= dim;
  }
  for (int64_t i = 0; i < count; ++i) tensor.add_float_data(static_cast<float>(i) / 8);
}

void OnnxGraphWriter::Numbers(const std::string& name, const std::vector<int64_t>& values) {
  onnx::TensorProto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (const int64_t value : values) tensor.add_int64_data(value);
}

onnx::NodeProto& OnnxGraphWriter::Node(const std::string& type,
                                       const std::vector<std::string>& inputs,
                                       const std::string& output) {
  onnx::NodeProto& node = *graph().add_node();
  node.set_op_type(type);
  node.set_name("n_" + output);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

void OnnxGraphWriter::Ints(onnx::NodeProto& node, const std::string& name,
                           const std::vector<int64_t>& values) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute.add_ints(value);
}

}  // namespace runnel
