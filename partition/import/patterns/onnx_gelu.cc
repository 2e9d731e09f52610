#include "partition/import/patterns/onnx_gelu.h"

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

constexpr int kMostSteps = 6;  // from a Tanh or Erf to the ends of its GELU
constexpr int kMostPower = 4;
constexpr double kClose = 1e-5;

bool IsBend(const onnx::NodeProto& node) {
  return node.op_type() == "Tanh" || node.op_type() == "Erf";
}
bool IsArithmetic(const onnx::NodeProto& node) {
  const std::string& type = node.op_type();
  return type == "Mul" || type == "Add" || type == "Div" || type == "Pow";
}

template <typename Terms>
bool Is(const Terms& terms, const Terms& expected) {
  if (terms.size() != expected.size()) return false;
  for (const auto& [powers, factor] : expected) {
    const auto found = terms.find(powers);
    if (found == terms.end() || std::abs(found->second - factor) > kClose * std::abs(factor))
      return false;
  }
  return true;
}

}  // namespace

void GeluForms::Begin(const onnx::GraphProto& graph) {
  std::map<std::string, const onnx::NodeProto*> makers;
  std::multimap<std::string, const onnx::NodeProto*> readers;
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) makers[output] = &node;
    for (const std::string& input : node.input()) readers.emplace(input, &node);
  }
  const auto add_inputs = [&](const onnx::NodeProto& node,
                              std::vector<const onnx::NodeProto*>& to) {
    for (const std::string& input : node.input()) {
      const auto found = makers.find(input);
      if (found != makers.end() && IsArithmetic(*found->second)) to.push_back(found->second);
    }
  };
  for (const onnx::NodeProto& bend : graph.node()) {
    if (!IsBend(bend)) continue;
    std::set<const onnx::NodeProto*> seen = {&bend};
    std::vector<const onnx::NodeProto*> front = {&bend};
    for (int step = 0; step < kMostSteps; ++step) {
      std::vector<const onnx::NodeProto*> next;
      for (const onnx::NodeProto* node : front) {
        add_inputs(*node, next);
        // Forwards only from what the bend is part of, three steps far: + 1, * x, * 0.5.
        if (step > 2 || node->output_size() < 1) continue;
        const auto [begin, end] = readers.equal_range(node->output(0));
        for (auto it = begin; it != end; ++it) {
          if (IsArithmetic(*it->second)) next.push_back(it->second);
        }
      }
      front.clear();
      for (const onnx::NodeProto* node : next) {
        if (seen.insert(node).second) front.push_back(node);
      }
    }
    for (const onnx::NodeProto* node : seen)
      around_.insert(node->output().begin(), node->output().end());
  }
}

GeluForms::Open GeluForms::SumOf(const std::string& value, const GraphFacts& facts) const {
  const auto found = open_.find(value);
  if (found != open_.end()) return found->second;
  return {facts.Resolved(value), {{{1, 0}, 1.0}}, false};
}

// InvalidArgument: it is no such sum.
absl::StatusOr<GeluForms::Open> GeluForms::Combined(const onnx::NodeProto& node,
                                                    const GraphFacts& facts) const {
  const absl::Status none = absl::InvalidArgumentError("of a value inside a GELU");
  const std::string& type = node.op_type();
  Open result;
  if (const std::optional<WithNumber> by = ByNumber(facts, node)) {
    result = SumOf(by->value, facts);
    if (type == "Add") {
      result.terms[{0, 0}] += by->number;
      return result;
    }
    if (type == "Mul" || (type == "Div" && by->is_second && by->number != 0)) {
      for (auto& [powers, factor] : result.terms)
        factor = type == "Mul" ? factor * by->number : factor / by->number;
      return result;
    }
    const bool is_power = type == "Pow" && by->is_second && (by->number == 2 || by->number == 3) &&
                          result.terms.size() == 1 && result.terms.begin()->first.second == 0;
    if (!is_power) return none;
    const auto [powers, factor] = *result.terms.begin();
    const int power = powers.first * static_cast<int>(by->number);
    if (power > kMostPower) return none;
    result.terms = {{{power, 0}, std::pow(factor, by->number)}};
    return result;
  }
  if (node.input_size() != 2) return none;
  for (const std::string& input : node.input()) {
    if (facts.constants().count(input) > 0) return none;
  }
  const Open a = SumOf(node.input(0), facts), b = SumOf(node.input(1), facts);
  if (a.x != b.x) return none;
  result.x = a.x;
  result.is_erf = a.is_erf || b.is_erf;
  if (type == "Add") {
    result.terms = a.terms;
    for (const auto& [powers, factor] : b.terms) result.terms[powers] += factor;
    return result;
  }
  if (type != "Mul") return none;
  for (const auto& [left, factor] : a.terms) {
    for (const auto& [right, other] : b.terms) {
      const int power = left.first + right.first, bent = left.second + right.second;
      if (power > kMostPower || bent > 1) return none;
      result.terms[{power, bent}] += factor * other;
    }
  }
  return result;
}

// The tanh or erf of what a GELU takes it of.
absl::StatusOr<GeluForms::Open> GeluForms::Bent(const onnx::NodeProto& node) const {
  const auto found = open_.find(node.input(0));
  if (found == open_.end()) return absl::InvalidArgumentError("this operator, but in a GELU");
  const double slope = std::sqrt(2 / M_PI);
  const bool is_erf = node.op_type() == "Erf";
  const Terms expected =
      is_erf ? Terms{{{1, 0}, std::sqrt(0.5)}} : Terms{{{1, 0}, slope}, {{3, 0}, slope * 0.044715}};
  if (!Is(found->second.terms, expected))
    return absl::InvalidArgumentError("of another sum than that in a GELU");
  return Open{found->second.x, {{{0, 1}, 1.0}}, is_erf};
}

absl::StatusOr<Taken> GeluForms::Take(const onnx::NodeProto& node, GraphFacts& facts) {
  bool reads_open = false;
  for (const std::string& input : node.input()) reads_open = reads_open || Has(input);
  if (!reads_open && around_.count(node.output(0)) == 0) return Taken();
  if (IsBend(node)) {
    RUNNEL_ASSIGN_OR_RETURN(open_[node.output(0)], Bent(node));
    return Taken{true, std::nullopt};
  }
  absl::StatusOr<Open> sum = Combined(node, facts);
  if (!sum.ok()) return reads_open ? absl::StatusOr<Taken>(sum.status()) : Taken();
  if (!Is(sum->terms, Terms{{{1, 0}, 0.5}, {{1, 1}, 0.5}})) {
    open_[node.output(0)] = *std::move(sum);
    return Taken{true, std::nullopt};
  }
  FlatOp op;
  op.spec.kind = OpKind::kGelu;
  op.inputs = {sum->x};
  op.output = node.output(0);
  op.name = node.name();
  op.spec.exact = sum->is_erf;
  return Taken{true, std::move(op)};
}

}  // namespace runnel::import
