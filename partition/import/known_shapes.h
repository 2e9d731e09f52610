#pragma once

// Shapes of an ONNX graph's values, as far as its operators are known. For onnx_graph.cc.

#include <map>
#include <string>
#include <vector>

#include "partition/import/onnx_graph.h"
#include "proto/base/tensor/shape.h"

namespace runnel::import {

class KnownShapes {
 public:
  // ops: those that are there so far, with what makes their inputs before them.
  explicit KnownShapes(const std::vector<FlatOp>& ops) : ops_(ops) {}

  // sample: of the graph's input, without the batch.
  void SetInput(const std::string& name, const Shape& sample);
  // Of a value that an operator will make which is not there yet. shape: with a batch of 1.
  void Set(const std::string& value, const Shape& shape) { shapes_.insert_or_assign(value, shape); }
  // With a batch of 1. Null: not known; what is wrong is named when the model is whole. Operators
  // do not change once their output was asked for.
  const Shape* Find(const std::string& value);

 private:
  const std::vector<FlatOp>& ops_;
  size_t seen_ = 0;
  std::map<std::string, Shape> shapes_;  // of the input and of what the seen operators make
};

}  // namespace runnel::import
