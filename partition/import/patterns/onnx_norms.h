#pragma once

// Layer norms that exporters write as a node each step: ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt,
// Div, and the scale and shift behind. For onnx_graph.cc.

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "partition/import/onnx_facts.h"

namespace runnel::import {

class NormForms {
 public:
  // Whether the value lies between these nodes.
  bool Has(const std::string& value) const { return open_.count(value) > 0; }
  // Of a node that is one of them; the Div makes the operator, with scale 1 and shift 0.
  // InvalidArgument: it does something else to a value that lies between.
  absl::StatusOr<Taken> Take(const onnx::NodeProto& node, GraphFacts& facts);

 private:
  enum class Step { kMean, kCentered, kSquare, kVariance, kGuarded, kDeviation };
  struct Open {
    Step step = Step::kMean;
    std::string value;  // what is normalised
    double epsilon = 0;
  };
  const Open* Find(const std::string& value, Step step) const;
  bool BeginsMean(const onnx::NodeProto& node, GraphFacts& facts) const;
  absl::StatusOr<FlatOp> Whole(const onnx::NodeProto& node, GraphFacts& facts) const;

  std::map<std::string, Open> open_;
};

// LayerNormalization of one node. InvalidArgument: over other axes than the last, weights that are
// no constants.
absl::StatusOr<FlatOp> ReadLayerNorm(const onnx::NodeProto& node, GraphFacts& facts);

// Puts a constant behind a layer norm into it: a factor (Mul) or what is added. False: it has
// another size.
bool SetNormWeight(FlatOp& norm, TensorRole role, const Constant& values);

}  // namespace runnel::import
