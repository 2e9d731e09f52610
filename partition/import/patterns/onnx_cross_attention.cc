#include "partition/import/patterns/onnx_cross_attention.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace runnel::import {
namespace {

// Of one value, these give parts of it, other forms, or what a linear operator or a scale makes of it.
bool PassesOn(const std::string& type) {
  static const std::set<std::string> kTypes = {
      "Add",     "Cast",  "Div",   "Dropout", "Gemm", "Identity",  "MatMul",    "Mul",
      "Reshape", "Slice", "Split", "Squeeze", "Sub",  "Transpose", "Unsqueeze", "Where"};
  return kTypes.contains(type);
}

class Ways {
 public:
  explicit Ways(const onnx::GraphProto& graph) {
    for (const onnx::TensorProto& tensor : graph.initializer()) constants_.insert(tensor.name());
    for (const onnx::NodeProto& node : graph.node()) {
      const bool is_constant = node.op_type() == "Shape" || VariablesOf(node).empty();
      for (const std::string& output : node.output()) {
        makers_[output] = &node;
        if (is_constant) constants_.insert(output);
      }
    }
  }

  // The inputs that depend on the samples.
  std::vector<std::string> VariablesOf(const onnx::NodeProto& node) const {
    std::vector<std::string> variables;
    for (const std::string& input : node.input()) {
      if (!input.empty() && !constants_.contains(input)) variables.push_back(input);
    }
    return variables;
  }

  // The value behind which nodes only pass on.
  std::string SourceOf(std::string value) const {
    // Each step leads to an earlier node.
    for (size_t steps = 0; steps <= makers_.size(); ++steps) {
      const onnx::NodeProto* node = MakerOf(value);
      if (node == nullptr || !PassesOn(node->op_type())) break;
      const std::vector<std::string> variables = VariablesOf(*node);
      if (variables.size() != 1) break;
      value = variables[0];
    }
    return value;
  }

  // The product of two values of samples that made this one, if one did.
  const onnx::NodeProto* ProductOf(const std::string& value) const {
    const onnx::NodeProto* node = MakerOf(value);
    return node != nullptr && IsProduct(*node) ? node : nullptr;
  }
  bool IsProduct(const onnx::NodeProto& node) const {
    return node.op_type() == "MatMul" && VariablesOf(node).size() == 2;
  }

 private:
  const onnx::NodeProto* MakerOf(const std::string& value) const {
    const auto found = makers_.find(value);
    return found == makers_.end() ? nullptr : found->second;
  }

  std::set<std::string> constants_;
  std::map<std::string, const onnx::NodeProto*> makers_;
};

}  // namespace

std::string FindCrossAttention(const onnx::GraphProto& graph) {
  const Ways ways(graph);
  for (const onnx::NodeProto& mix : graph.node()) {
    if (!ways.IsProduct(mix)) continue;
    const std::string shares = ways.SourceOf(mix.input(0));
    const auto softmax =
        std::find_if(graph.node().begin(), graph.node().end(), [&](const onnx::NodeProto& node) {
          return node.op_type() == "Softmax" && node.input_size() == 1 && node.output_size() == 1 &&
                 node.output(0) == shares;
        });
    if (softmax == graph.node().end()) continue;
    const onnx::NodeProto* scores = ways.ProductOf(ways.SourceOf(softmax->input(0)));
    if (scores == nullptr) continue;
    const std::string queries = ways.SourceOf(scores->input(0)),
                      keys = ways.SourceOf(scores->input(1)), values = ways.SourceOf(mix.input(1));
    if (queries != keys && keys == values)
      return scores->name().empty() ? scores->output(0) : scores->name();
  }
  return "";
}

}  // namespace runnel::import
