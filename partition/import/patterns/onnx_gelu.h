#pragma once

// GELUs, which exporters write as sums and products: x / 2 * (1 + tanh(...)), or
// erf(...), in any order. For onnx_graph.cc.

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "partition/import/onnx_facts.h"

namespace runnel::import {

class GeluForms {
 public:
  // Whether the value lies between these nodes.
  bool Has(const std::string& value) const { return open_.count(value) > 0; }
  // The nodes of the graph that may be part of one: those around each Tanh and Erf.
  void Begin(const onnx::GraphProto& graph);
  // Of a node that is one of them; the last one makes the operator. InvalidArgument: a value that lies between becomes something else.
  absl::StatusOr<Taken> Take(const onnx::NodeProto& node, GraphFacts& facts);

 private:
  // The sum of factor * x^power * bend^bent, bend the tanh or erf of another such sum.
  using Terms = std::map<std::pair<int, int>, double>;
  struct Open {
    std::string x;
    Terms terms;
    bool is_erf = false;
  };
  // A value as such a sum: an open one, or x itself.
  Open SumOf(const std::string& value, const GraphFacts& facts) const;
  absl::StatusOr<Open> Combined(const onnx::NodeProto& node, const GraphFacts& facts) const;
  absl::StatusOr<Open> Bent(const onnx::NodeProto& node) const;

  std::set<std::string> around_;  // outputs of such nodes
  std::map<std::string, Open> open_;
};

}  // namespace runnel::import
