#include "partition/import/onnx_draft.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel::import {

GraphDraft::GraphDraft(const onnx::GraphProto& graph) : graph_(graph) {
  for (const onnx::NodeProto& node : graph_.node()) {
    for (const std::string& input : node.input()) readers_[input].push_back(&node);
  }
}

absl::Status GraphDraft::ReadInput() {
  const onnx::ValueInfoProto* input = nullptr;
  for (const onnx::ValueInfoProto& value : graph_.input()) {
    if (constants_.count(value.name()) > 0) continue;
    if (input != nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat("two inputs, '", input->name(), "' and '", value.name(), "'"));
    input = &value;
  }
  if (input == nullptr) return absl::InvalidArgumentError("has no input");
  std::vector<int64_t> dims;
  for (const auto& dim : input->type().tensor_type().shape().dim())
    dims.push_back(dim.has_dim_value() ? dim.dim_value() : 0);
  if (dims.size() < 2)
    return absl::InvalidArgumentError(
        absl::StrCat("input '", input->name(), "' has no shape (batch, ...)"));
  dims.erase(dims.begin());  // the batch
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input '", input->name(), "' has a size that is not fixed; only the batch may vary"));
  }
  const int32_t elements = input->type().tensor_type().elem_type();
  has_tokens_ = elements == onnx::TensorProto::INT64 || elements == onnx::TensorProto::INT32;
  flat_.input_name = input->name();
  RUNNEL_ASSIGN_OR_RETURN(flat_.input, Shape::Create(dims));
  shapes_.SetInput(flat_.input_name, flat_.input);
  return absl::OkStatus();
}

std::string GraphDraft::Resolved(const std::string& value) const {
  std::string name = value;
  for (auto found = aliases_.find(name); found != aliases_.end(); found = aliases_.find(name))
    name = found->second;
  return name;
}

const std::vector<const onnx::NodeProto*>& GraphDraft::Readers(const std::string& value) const {
  static const std::vector<const onnx::NodeProto*>& none = *new std::vector<const onnx::NodeProto*>;
  const auto found = readers_.find(value);
  return found == readers_.end() ? none : found->second;
}

std::vector<const Constant*> GraphDraft::AllConstants(const onnx::NodeProto& node) const {
  std::vector<const Constant*> constants;
  for (int i = 0; i < node.input_size(); ++i) {
    const Constant* constant = ConstantOf(node, i);
    if (constant == nullptr) return {};
    constants.push_back(constant);
  }
  return constants;
}

absl::StatusOr<Shape> GraphDraft::NeedShape(const std::string& value) {
  if (const Shape* shape = ShapeOf(value)) return *shape;
  return absl::InvalidArgumentError("of an input whose shape is not known");
}

void GraphDraft::SetVector(const std::string& value, bool is_vector) {
  if (is_vector) {
    vectors_.insert(value);
  } else {
    vectors_.erase(value);
  }
}

WindowInput GraphDraft::WindowInputOf(const onnx::NodeProto& node) {
  WindowInput input;
  if (const Shape* shape = ShapeOf(node.input(0)); shape != nullptr && shape->rank() > 2)
    input.lengths.assign(shape->dims().begin() + 2, shape->dims().end());
  if (const auto found = padded_.find(node.input(0)); found != padded_.end())
    input.pads = found->second;
  return input;
}

FlatOp& GraphDraft::Add(const onnx::NodeProto& node, OpKind kind) {
  const Shape* shape = ShapeOf(node.input(0));
  const bool is_of_rows = shape != nullptr && shape->rank() > 2;
  FlatOp& op = flat_.ops.emplace_back();
  op.spec.kind = kind;
  op.inputs = {Resolved(node.input(0))};
  op.output = node.output(0);
  op.name = node.name();
  const bool gives_vectors = kind == OpKind::kGlobalAvgPool || kind == OpKind::kFlatten ||
                             (kind == OpKind::kLinear && !is_of_rows) || IsVector(op.inputs[0]);
  if (gives_vectors) vectors_.insert(op.output);
  return op;
}

absl::Status GraphDraft::AddRead(const onnx::NodeProto& node, absl::StatusOr<FlatOp> read) {
  RUNNEL_RETURN_IF_ERROR(read.status());
  FlatOp& op = Add(node, read->spec.kind);
  op.spec = read->spec;
  op.constants = std::move(read->constants);
  op.name = std::move(read->name);
  return absl::OkStatus();
}

void GraphDraft::Add(FlatOp op) {
  if (IsVector(op.inputs[0])) vectors_.insert(op.output);
  flat_.ops.push_back(std::move(op));
}

FlatOp* GraphDraft::Newest(const std::string& value) {
  return flat_.ops.empty() || flat_.ops.back().output != value ? nullptr : &flat_.ops.back();
}

FlatGraph GraphDraft::Take(std::string output) {
  flat_.output_name = std::move(output);
  return std::move(flat_);
}

}  // namespace runnel::import
