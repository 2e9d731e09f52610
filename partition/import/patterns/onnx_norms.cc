#include "partition/import/patterns/onnx_norms.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

// The axes of a ReduceMean are the last one alone.
bool IsOverLast(const onnx::NodeProto& node, const GraphFacts& facts, int rank) {
  std::vector<int64_t> axes = Attributes(node).Ints("axes", {});
  if (const Constant* constant = FindConstant(facts.constants(), node, 1))
    axes = WholeNumbersOf(*constant);
  const bool is_last = axes.size() == 1 && (axes[0] == -1 || axes[0] == rank - 1);
  return is_last && Attributes(node).Int("keepdims", 1) == 1;
}

FlatOp NormOf(std::string value, std::string name, double epsilon, int64_t features) {
  FlatOp op;
  op.spec.kind = OpKind::kLayerNorm;
  // Written as floats, 1e-5 is another double.
  op.spec.epsilon = std::round(epsilon * 1e12) / 1e12;
  op.inputs = {std::move(value)};
  op.name = std::move(name);
  const auto count = static_cast<size_t>(features);
  op.constants[TensorRole::kScale] = {{features}, std::vector<float>(count, 1.0f)};
  op.constants[TensorRole::kShift] = {{features}, std::vector<float>(count, 0.0f)};
  return op;
}

}  // namespace

bool SetNormWeight(FlatOp& norm, TensorRole role, const Constant& values) {
  std::vector<float>& scale = norm.constants[TensorRole::kScale].values;
  std::vector<float>& shift = norm.constants[TensorRole::kShift].values;
  const std::vector<float>& numbers = values.values;
  // (features, 1) is by position.
  if (numbers.size() != scale.size() || values.dims.empty() ||
      values.dims.back() != static_cast<int64_t>(numbers.size()))
    return false;
  // Behind what the norm has already.
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (role == TensorRole::kShift) {
      shift[i] += numbers[i];
    } else {
      scale[i] *= numbers[i];
      if (shift[i] != 0) shift[i] *= numbers[i];
    }
  }
  return true;
}

absl::StatusOr<FlatOp> ReadLayerNorm(const onnx::NodeProto& node, GraphFacts& facts) {
  const Shape* shape = facts.ShapeOf(node.input(0));
  if (shape == nullptr) return absl::InvalidArgumentError("of an input whose shape is not known");
  const int64_t axis = Attributes(node).Int("axis", -1);
  if (axis != -1 && axis != shape->rank() - 1)
    return absl::InvalidArgumentError(absl::StrCat("attribute axis ", axis, ", not the last one"));
  FlatOp op = NormOf(facts.Resolved(node.input(0)), node.name(),
                     Attributes(node).Real("epsilon", 1e-5), (*shape)[shape->rank() - 1]);
  op.output = node.output(0);
  for (int i = 1; i < node.input_size(); ++i) {
    if (node.input(i).empty()) continue;
    const Constant* weight = FindConstant(facts.constants(), node, i);
    if (weight == nullptr ||
        !SetNormWeight(op, i == 1 ? TensorRole::kScale : TensorRole::kShift, *weight))
      return absl::InvalidArgumentError("a scale or shift that is no list of its features");
  }
  return op;
}

const NormForms::Open* NormForms::Find(const std::string& value, Step step) const {
  const auto found = open_.find(value);
  return found == open_.end() || found->second.step != step ? nullptr : &found->second;
}

// A mean over the last axis that is taken off its own input, and nothing else.
bool NormForms::BeginsMean(const onnx::NodeProto& node, GraphFacts& facts) const {
  const Shape* shape = facts.ShapeOf(node.input(0));
  if (shape == nullptr || !IsOverLast(node, facts, shape->rank())) return false;
  const auto& readers = facts.Readers(node.output(0));
  for (const onnx::NodeProto* reader : readers) {
    if (reader->op_type() != "Sub" || reader->input_size() != 2 ||
        facts.Resolved(reader->input(0)) != facts.Resolved(node.input(0)))
      return false;
  }
  return !readers.empty();
}

absl::StatusOr<FlatOp> NormForms::Whole(const onnx::NodeProto& node, GraphFacts& facts) const {
  const Open* centered = Find(node.input(0), Step::kCentered);
  const Open* deviation = Find(node.input(1), Step::kDeviation);
  if (centered == nullptr || deviation == nullptr || centered->value != deviation->value)
    return absl::InvalidArgumentError("of parts of two layer norms");
  const Shape* shape = facts.ShapeOf(centered->value);
  if (shape == nullptr) return absl::InvalidArgumentError("of an input whose shape is not known");
  FlatOp op = NormOf(centered->value, node.name(), deviation->epsilon, (*shape)[shape->rank() - 1]);
  op.output = node.output(0);
  return op;
}

absl::StatusOr<Taken> NormForms::Take(const onnx::NodeProto& node, GraphFacts& facts) {
  const std::string& type = node.op_type();
  const auto opens = [&](Step step, std::string value, double epsilon = 0) {
    open_[node.output(0)] = {step, std::move(value), epsilon};
    return Taken{true, std::nullopt};
  };
  if (type == "ReduceMean" && !Has(node.input(0)) && BeginsMean(node, facts))
    return opens(Step::kMean, facts.Resolved(node.input(0)));
  bool is_of_norm = false;
  for (const std::string& input : node.input()) is_of_norm = is_of_norm || Has(input);
  if (!is_of_norm) return Taken();
  const std::string& first = node.input(0);
  if (type == "Sub" && node.input_size() == 2) {
    const Open* mean = Find(node.input(1), Step::kMean);
    if (mean != nullptr && mean->value == facts.Resolved(first))
      return opens(Step::kCentered, mean->value);
  }
  if (const Open* centered = Find(first, Step::kCentered)) {
    const bool is_square =
        node.input_size() == 2 && ((type == "Pow" && NumberOf(facts, node.input(1)) == 2.0) ||
                                   (type == "Mul" && node.input(1) == first));
    if (is_square) return opens(Step::kSquare, centered->value);
    if (type == "Div" && node.input_size() == 2) {
      RUNNEL_ASSIGN_OR_RETURN(FlatOp op, Whole(node, facts));
      return Taken{true, std::move(op)};
    }
  }
  if (const Open* square = Find(first, Step::kSquare); square != nullptr && type == "ReduceMean") {
    const Shape* shape = facts.ShapeOf(square->value);
    if (shape != nullptr && IsOverLast(node, facts, shape->rank()))
      return opens(Step::kVariance, square->value);
  }
  if (const std::optional<WithNumber> sum = ByNumber(facts, node); sum && type == "Add") {
    if (const Open* variance = Find(sum->value, Step::kVariance))
      return opens(Step::kGuarded, variance->value, sum->number);
  }
  if (const Open* guarded = Find(first, Step::kGuarded); guarded != nullptr && type == "Sqrt")
    return opens(Step::kDeviation, guarded->value, guarded->epsilon);
  return absl::InvalidArgumentError("of a value inside a layer norm");
}

}  // namespace runnel::import
