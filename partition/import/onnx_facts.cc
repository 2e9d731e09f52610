#include "partition/import/onnx_facts.h"

namespace runnel::import {

std::optional<double> NumberOf(const GraphFacts& facts, const std::string& value) {
  const auto found = facts.constants().find(value);
  if (found == facts.constants().end() || found->second.values.size() != 1) return std::nullopt;
  return double{found->second.values[0]};
}

std::optional<WithNumber> ByNumber(const GraphFacts& facts, const onnx::NodeProto& node) {
  if (node.input_size() != 2) return std::nullopt;
  for (int i = 0; i < 2; ++i) {
    if (facts.constants().count(node.input(1 - i)) > 0) continue;
    if (const std::optional<double> number = NumberOf(facts, node.input(i)))
      return WithNumber{node.input(1 - i), *number, i == 1};
  }
  return std::nullopt;
}

}  // namespace runnel::import
