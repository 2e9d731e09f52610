#include "partition/import/onnx_weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "partition/import/onnx_folding.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

absl::Status Unsupported(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<const Constant*> NeedConstant(const Constants& constants,
                                             const onnx::NodeProto& node, int input,
                                             absl::string_view what) {
  if (const Constant* found = FindConstant(constants, node, input)) return found;
  return Unsupported(absl::StrCat(what, " is no constant"));
}

// "layer1.0.conv1" of "layer1.0.conv1.weight"; other exporters' names say nothing.
std::string NameOf(const onnx::NodeProto& node, absl::string_view weight) {
  return absl::ConsumeSuffix(&weight, ".weight") ? std::string(weight) : node.name();
}

}  // namespace

const Constant* FindConstant(const Constants& constants, const onnx::NodeProto& node, int input) {
  if (input >= node.input_size()) return nullptr;
  const auto found = constants.find(node.input(input));
  return found == constants.end() ? nullptr : &found->second;
}

void SetBias(FlatOp& op, Constant bias) {
  op.spec.bias = true;
  bias.dims = {static_cast<int64_t>(bias.values.size())};
  op.constants[TensorRole::kBias] = std::move(bias);
}

absl::StatusOr<FlatOp> ReadConv(const onnx::NodeProto& node, const Constants& constants,
                                const WindowInput& input, bool of_vector) {
  RUNNEL_ASSIGN_OR_RETURN(const Constant* weight, NeedConstant(constants, node, 1, "its weight"));
  if (weight->dims.size() < 3)
    return Unsupported(absl::StrCat("a weight of rank ", weight->dims.size()));
  FlatOp op;
  RUNNEL_RETURN_IF_ERROR(
      SetWindow(node, input, {weight->dims.begin() + 2, weight->dims.end()}, op.spec));
  op.name = NameOf(node, node.input(1));
  op.spec.kind = OpKind::kConv;
  op.spec.out_channels = weight->dims[0];
  op.spec.groups = Attributes(node).Int("group", 1);
  op.constants[TensorRole::kWeight] = *weight;
  if (node.input_size() > 2) {
    RUNNEL_ASSIGN_OR_RETURN(const Constant* bias, NeedConstant(constants, node, 2, "its bias"));
    SetBias(op, *bias);
  }
  if (!of_vector) return op;
  const bool is_point = std::all_of(weight->dims.begin() + 2, weight->dims.end(),
                                    [](int64_t dim) { return dim == 1; });
  if (!is_point || op.spec.groups != 1 || op.spec.is_padded())
    return Unsupported("a window over a mean");
  op.spec.kind = OpKind::kLinear;
  op.spec.dilation = {1, 1};
  op.constants[TensorRole::kWeight].dims.resize(2);
  return op;
}

absl::StatusOr<FlatOp> ReadLinear(const onnx::NodeProto& node, const Constants& constants) {
  const Attributes attributes(node);
  RUNNEL_ASSIGN_OR_RETURN(const Constant* weight,
                          NeedConstant(constants, node, 1, "its right side"));
  if (weight->dims.size() != 2)
    return Unsupported(absl::StrCat("a right side of rank ", weight->dims.size()));
  if (attributes.Int("transA", 0) != 0 || attributes.Real("alpha", 1) != 1 ||
      attributes.Real("beta", 1) != 1)
    return Unsupported("attributes transA, alpha or beta");
  FlatOp op;
  op.name = NameOf(node, node.input(1));
  op.spec.kind = OpKind::kLinear;
  Constant& ours = op.constants[TensorRole::kWeight];
  ours = attributes.Int("transB", 0) != 0 ? *weight : TransposedMatrix(*weight);
  op.spec.out_channels = ours.dims[0];
  if (node.op_type() == "Gemm" && node.input_size() > 2) {
    RUNNEL_ASSIGN_OR_RETURN(const Constant* bias, NeedConstant(constants, node, 2, "its bias"));
    SetBias(op, *bias);
  }
  return op;
}

absl::StatusOr<FlatOp> ReadBatchNorm(const onnx::NodeProto& node, const Constants& constants) {
  static constexpr TensorRole kRoles[] = {TensorRole::kScale, TensorRole::kShift,
                                          TensorRole::kRunningMean, TensorRole::kRunningVar};
  FlatOp op;
  op.name = node.name();
  for (int i = 0; i < 4; ++i) {
    RUNNEL_ASSIGN_OR_RETURN(const Constant* constant,
                            NeedConstant(constants, node, i + 1, "its statistics"));
    op.constants[kRoles[i]] = *constant;
  }
  op.spec.kind = OpKind::kBatchNorm;
  op.spec.epsilon = Attributes(node).Real("epsilon", 1e-5);
  // ONNX says how much of the old stays. Written as floats, 0.9 is not 1 - 0.1.
  op.spec.momentum = std::round((1 - Attributes(node).Real("momentum", 0.9)) * 1e6) / 1e6;
  return op;
}

}  // namespace runnel::import
