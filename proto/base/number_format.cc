#include "proto/base/number_format.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

constexpr struct {
  absl::string_view family;
  NumberFormat format;
} kFormats[] = {
    {"fp32", {DType::kFloat32, DType::kFloat32}},
    {"niti", {DType::kInt8, DType::kInt8}},
};

// Why an operator has no integer form; empty if it has one.
absl::string_view NoIntegerForm(const OpSpec& op) {
  switch (op.kind) {
    case OpKind::kConv:
    case OpKind::kLinear:
      return op.bias ? "has a bias; integer weights have none" : "";
    case OpKind::kBatchNorm:
      return "integers are not normalised; take a model without batch norm";
    case OpKind::kRelu6:
      return "a bound of 6 means nothing to integers; take a model with relu";
    default:
      return "";
  }
}

int64_t TailOffset(DType dtype, const Shape& shape) {
  const int64_t bytes = shape.elements() * static_cast<int64_t>(SizeOf(dtype));
  return (bytes + 63) / 64 * 64;
}

}  // namespace

int64_t ScaledBytes(DType dtype, const Shape& shape) {
  return TailOffset(dtype, shape) + static_cast<int64_t>(sizeof(ScaleTail));
}

ScaleTail& TailOf(std::byte* data, DType dtype, const Shape& shape) {
  return *reinterpret_cast<ScaleTail*>(data + TailOffset(dtype, shape));
}

const ScaleTail& TailOf(const std::byte* data, DType dtype, const Shape& shape) {
  return *reinterpret_cast<const ScaleTail*>(data + TailOffset(dtype, shape));
}

absl::StatusOr<NumberFormat> NumberFormatOf(absl::string_view recipe) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(recipe, absl::MaxSplits(':', 1));
  std::string known;
  for (const auto& row : kFormats) {
    if (row.family == parts.first) return row.format;
    absl::StrAppend(&known, known.empty() ? "" : ", ", row.family);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("recipe '", recipe, "' is not known; there is ", known));
}

absl::Status CheckFormat(const ModelSpec& model, const NumberFormat& format) {
  if (!format.scaled()) return absl::OkStatus();
  for (const LayerSpec& layer : model.layers) {
    for (size_t i = 0; i < layer.ops.size(); ++i) {
      const absl::string_view why = NoIntegerForm(layer.ops[i]);
      if (why.empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat("model ", model.name, ", layer ", layer.name,
                                                     ", op ", i, " (", Name(layer.ops[i].kind),
                                                     "): ", why));
    }
  }
  return absl::OkStatus();
}

int64_t BoundaryBytes(const NumberFormat& format, const Shape& shape) {
  if (format.scaled()) return ScaledBytes(format.activation, shape);
  return shape.elements() * static_cast<int64_t>(SizeOf(format.activation));
}

std::vector<StateTensorSpec> StateOf(const LayerInfo& info, const NumberFormat& format) {
  if (format.parameter == DType::kFloat32) return info.state;
  std::vector<StateTensorSpec> state;
  for (const StateTensorSpec& spec : info.state) {
    state.push_back(spec);
    if (spec.role != TensorRole::kWeight) continue;
    state.back().dtype = format.parameter;
    state.push_back({absl::StrCat(spec.op, ".exponent"), spec.op, TensorRole::kExponent, Shape({1}),
                     DType::kInt32});
  }
  return state;
}

}  // namespace runnel
