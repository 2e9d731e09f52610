#include "partition/import/nodes/onnx_operators.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/import/nodes/onnx_joins.h"
#include "partition/import/nodes/onnx_layouts.h"
#include "partition/import/nodes/onnx_pointwise.h"
#include "partition/import/patterns/onnx_norms.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

absl::Status NoOperator(absl::string_view what) { return absl::InvalidArgumentError(what); }

Constant ListOf(absl::Span<const int64_t> values) {
  return {{static_cast<int64_t>(values.size())},
          {values.begin(), values.end()},
          /*is_integral=*/true};
}

absl::Status AddWeighted(const onnx::NodeProto& node, GraphDraft& draft) {
  const std::string& type = node.op_type();
  if (type == "Gather") {
    RUNNEL_RETURN_IF_ERROR(
        draft.AddRead(node, ReadEmbedding(node, draft.constants(), draft.HasTokens())));
    draft.ops().back().inputs = {draft.Resolved(node.input(1))};  // behind the table
    return absl::OkStatus();
  }
  if (type == "LayerNormalization") return draft.AddRead(node, ReadLayerNorm(node, draft));
  if (type == "Conv")
    return draft.AddRead(node, ReadConv(node, draft.constants(), draft.WindowInputOf(node),
                                        draft.IsVector(draft.Resolved(node.input(0)))));
  if (type == "BatchNormalization")
    return draft.AddRead(node, ReadBatchNorm(node, draft.constants()));
  return draft.AddRead(node, ReadLinear(node, draft.constants()));
}

absl::Status AddPlain(const onnx::NodeProto& node, GraphDraft& draft) {
  const std::string& type = node.op_type();
  if (type == "Dropout") {
    const Constant* rate = draft.ConstantOf(node, 1);
    draft.Add(node, OpKind::kDropout).spec.rate = rate != nullptr && rate->values.size() == 1
                                                      ? double{rate->values[0]}
                                                      : Attributes(node).Real("ratio", 0.5);
  } else if (type == "Relu") {
    draft.Add(node, OpKind::kRelu);
  } else if (type == "Sigmoid") {
    draft.Add(node, OpKind::kSigmoid);
  } else if (type == "LeakyRelu") {
    draft.Add(node, OpKind::kLeakyRelu).spec.rate = Attributes(node).Real("alpha", 0.01);
  } else if (type == "Gelu") {
    const std::string form = Attributes(node).Text("approximate");
    if (form != "" && form != "none" && form != "tanh")
      return NoOperator(absl::StrCat("attribute approximate ", form.substr(0, 40)));
    draft.Add(node, OpKind::kGelu).spec.exact = form != "tanh";
  } else if (type == "GlobalAveragePool") {
    draft.Add(node, OpKind::kGlobalAvgPool);
  } else {
    return NoOperator("this operator");
  }
  return absl::OkStatus();
}

// Of the samples to another integer, of values to themselves.
absl::Status AddCast(const onnx::NodeProto& node, GraphDraft& draft) {
  const int64_t to = Attributes(node).Int("to", 0);
  const bool is_integer = to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32;
  const bool is_of_samples =
      draft.Resolved(node.input(0)) == draft.input_name() && draft.HasTokens();
  if (is_of_samples ? !is_integer : to != onnx::TensorProto::FLOAT)
    return NoOperator(absl::StrCat("attribute to ", to));
  draft.Alias(node);
  return absl::OkStatus();
}

absl::Status AddPool(const onnx::NodeProto& node, GraphDraft& draft) {
  RUNNEL_ASSIGN_OR_RETURN(const OpSpec spec, ReadPool(node, draft.WindowInputOf(node)));
  draft.Add(node, spec.kind).spec = spec;
  return absl::OkStatus();
}

// Exporters write it in front of means and convolutions, also where there is nothing to pad.
absl::Status AddPad(const onnx::NodeProto& node, GraphDraft& draft) {
  const bool has_value = node.input_size() > 2 && !node.input(2).empty();
  const Constant* value = draft.ConstantOf(node, 2);
  if (has_value && value == nullptr) return NoOperator("what it pads with is no constant");
  RUNNEL_ASSIGN_OR_RETURN(const Pads pads, ReadPads(node, draft.ConstantOf(node, 1), value));
  draft.Alias(node);
  if (!pads.empty()) draft.SetPads(node.output(0), pads);
  return absl::OkStatus();
}

// (batch, ...) -> (batch, features). Behind a mean nothing is left to flatten.
absl::Status AddFlatten(const onnx::NodeProto& node, GraphDraft& draft) {
  if (node.op_type() == "Flatten") {
    if (Attributes(node).Int("axis", 1) != 1) return NoOperator("attribute axis");
  } else if (node.op_type() == "Reshape") {
    const Constant* shape = draft.ConstantOf(node, 1);
    if (shape == nullptr) return NoOperator("its shape is no constant");
    // (batch, channels) to (batch, channels, 1, 1), a factor for each channel.
    const bool is_vector =
        shape->values.size() > 2 && draft.IsVector(draft.Resolved(node.input(0))) &&
        std::all_of(shape->values.begin() + 2, shape->values.end(), [](float d) { return d == 1; });
    if (!is_vector && (shape->values.size() != 2 || shape->values[0] > 1))
      return NoOperator(absl::StrCat("a shape of ", absl::StrJoin(shape->values, ","),
                                     ", which is not (batch, features)"));
  } else if (!draft.IsVector(draft.Resolved(node.input(0)))) {
    return NoOperator("of what is no mean over the plane");
  }
  if (draft.IsVector(draft.Resolved(node.input(0)))) {
    draft.Alias(node);
  } else {
    draft.Add(node, OpKind::kFlatten);
  }
  return absl::OkStatus();
}

// HardSwish is x times it.
absl::Status AddHardSigmoid(const onnx::NodeProto& node, GraphDraft& draft) {
  RUNNEL_RETURN_IF_ERROR(CheckHardSigmoid(node));
  const bool is_swish = node.op_type() == "HardSwish";
  FlatOp& gate = draft.Add(node, OpKind::kHardSigmoid);
  if (!is_swish) return absl::OkStatus();
  gate.output = absl::StrCat(node.output(0), ".gate");
  const std::string factor = gate.output;
  draft.Add(node, OpKind::kMultiply).inputs.push_back(factor);
  return absl::OkStatus();
}

// Over all axes behind the channels.
absl::Status AddMean(const onnx::NodeProto& node, GraphDraft& draft) {
  RUNNEL_RETURN_IF_ERROR(CheckMean(node, draft.constants(), draft.input().rank() + 1));
  draft.Add(node, OpKind::kGlobalAvgPool);
  return absl::OkStatus();
}

absl::Status AddClip(const onnx::NodeProto& node, GraphDraft& draft) {
  RUNNEL_ASSIGN_OR_RETURN(const OpKind kind, ReadClip(node, draft.constants()));
  draft.Add(node, kind);
  return absl::OkStatus();
}

absl::Status AddTranspose(const onnx::NodeProto& node, GraphDraft& draft) {
  return draft.shuffles().Turn(node);
}

absl::Status AddReshape(const onnx::NodeProto& node, GraphDraft& draft) {
  return IsOfGroups(node, draft) ? AddGroups(node, draft) : AddFlatten(node, draft);
}

constexpr struct {
  absl::string_view type;
  absl::Status (*add)(const onnx::NodeProto& node, GraphDraft& draft);
} kReaders[] = {
    {"Add", AddSum},
    {"AveragePool", AddPool},
    {"BatchNormalization", AddWeighted},
    {"Cast", AddCast},
    {"Clip", AddClip},
    {"Concat", AddConcat},
    {"Conv", AddWeighted},
    {"Flatten", AddFlatten},
    {"Gather", AddWeighted},
    {"Gemm", AddWeighted},
    {"HardSigmoid", AddHardSigmoid},
    {"HardSwish", AddHardSigmoid},
    {"LayerNormalization", AddWeighted},
    {"MatMul", AddWeighted},
    {"MaxPool", AddPool},
    {"Mul", AddProduct},
    {"Pad", AddPad},
    {"ReduceMean", AddMean},
    {"Reshape", AddReshape},
    {"Slice", AddSlice},
    {"Split", AddSplit},
    {"Squeeze", AddFlatten},
    {"Transpose", AddTranspose},
};

}  // namespace

absl::Status AddShape(const onnx::NodeProto& node, GraphDraft& draft) {
  if (const Constant* constant = draft.ConstantOf(node, 0)) {
    draft.SetConstant(node.output(0), ListOf(constant->dims));
    return absl::OkStatus();
  }
  RUNNEL_ASSIGN_OR_RETURN(const Shape shape, draft.NeedShape(node.input(0)));
  const Attributes attributes(node);
  if (attributes.Has("start") || attributes.Has("end"))
    return NoOperator("attributes start and end");
  draft.SetConstant(node.output(0), ListOf(SizesAs(draft.LayoutOf(node.input(0)), shape)));
  return absl::OkStatus();
}

absl::Status AddConstant(const onnx::NodeProto& node, GraphDraft& draft) {
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() != "value") continue;
    RUNNEL_ASSIGN_OR_RETURN(Constant constant, ReadTensor(attribute.t()));
    draft.SetConstant(node.output(0), std::move(constant));
    return absl::OkStatus();
  }
  return NoOperator("a constant that is no tensor");
}

absl::Status AddOperator(const onnx::NodeProto& node, GraphDraft& draft) {
  for (const auto& [type, add] : kReaders) {
    if (node.op_type() == type) return add(node, draft);
  }
  return AddPlain(node, draft);
}

}  // namespace runnel::import
