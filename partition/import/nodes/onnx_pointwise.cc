#include "partition/import/nodes/onnx_pointwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "partition/import/patterns/onnx_norms.h"

namespace runnel::import {
namespace {

absl::Status NotRead(absl::string_view what) { return absl::InvalidArgumentError(what); }

// (positions, features), or with a batch of one before.
bool SetPositions(FlatOp& embedding, const Constant& added) {
  std::vector<int64_t> dims = added.dims;
  if (dims.size() == 3 && dims[0] == 1) dims.erase(dims.begin());
  if (dims.size() != 2 || dims[1] != embedding.spec.out_channels) return false;
  embedding.spec.positions = true;
  embedding.constants[TensorRole::kPositions] = {std::move(dims), added.values};
  return true;
}

}  // namespace

absl::StatusOr<OpKind> ReadClip(const onnx::NodeProto& node, const Constants& constants) {
  const auto bound = [&](int input, absl::string_view attribute, double otherwise) {
    const Constant* constant = FindConstant(constants, node, input);
    if (constant != nullptr && constant->values.size() == 1) return double{constant->values[0]};
    return Attributes(node).Real(attribute, otherwise);
  };
  const double most = bound(2, "max", std::numeric_limits<float>::max());
  if (bound(1, "min", -1) != 0) return NotRead("a lower bound that is not 0");
  if (most != 6 && most < 1e30) return NotRead(absl::StrCat("an upper bound of ", most));
  return most == 6 ? OpKind::kRelu6 : OpKind::kRelu;
}

absl::Status CheckHardSigmoid(const onnx::NodeProto& node) {
  const Attributes attributes(node);
  const double alpha = attributes.Real("alpha", node.op_type() == "HardSwish" ? 1.0 / 6 : 0.2);
  if (std::abs(alpha - 1.0 / 6) <= 1e-4 && attributes.Real("beta", 0.5) == 0.5)
    return absl::OkStatus();
  return NotRead(absl::StrCat("attributes alpha ", alpha, " and beta; 1/6 and 0.5 are"));
}

absl::Status CheckMean(const onnx::NodeProto& node, const Constants& constants, int rank) {
  std::vector<int64_t> axes = Attributes(node).Ints("axes", {});
  if (const Constant* constant = FindConstant(constants, node, 1)) axes = WholeNumbersOf(*constant);
  std::set<int64_t> meant, spatial;
  for (const int64_t axis : axes) meant.insert(axis < 0 ? axis + rank : axis);
  for (int64_t axis = 2; axis < rank; ++axis) spatial.insert(axis);
  if (meant == spatial) return absl::OkStatus();
  return NotRead(absl::StrCat("axes ", absl::StrJoin(axes, ",")));
}

absl::StatusOr<FlatOp> ReadEmbedding(const onnx::NodeProto& node, const Constants& constants,
                                     bool of_tokens) {
  const Constant* table = FindConstant(constants, node, 0);
  if (table == nullptr || table->dims.size() != 2 || node.input_size() != 2 || !of_tokens ||
      Attributes(node).Int("axis", 0) != 0)
    return NotRead("which is no row of a table for each token of the samples");
  FlatOp op;
  op.spec.kind = OpKind::kEmbedding;
  op.spec.rows = table->dims[0];
  op.spec.out_channels = table->dims[1];
  op.constants[TensorRole::kWeight] = *table;
  absl::string_view name = node.input(0);
  op.name = absl::ConsumeSuffix(&name, ".weight") ? std::string(name) : node.name();
  return op;
}

bool AddConstantTo(FlatOp& op, const Constant& added) {
  switch (op.spec.kind) {
    case OpKind::kLinear:
      // (positions, 1) is no bias, even of as many features.
      if (op.spec.bias || added.dims.empty() ||
          added.dims.back() != static_cast<int64_t>(added.values.size()))
        return false;
      SetBias(op, added);
      return true;
    case OpKind::kEmbedding:
      return !op.spec.positions && SetPositions(op, added);
    case OpKind::kLayerNorm:
      return SetNormWeight(op, TensorRole::kShift, added);
    default:
      return false;
  }
}

}  // namespace runnel::import
