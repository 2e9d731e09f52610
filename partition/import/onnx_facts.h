#pragma once

// What the parts of the importer that see several nodes together ask of the graph. For onnx_graph.cc.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "onnx/onnx_pb.h"
#include "partition/import/onnx_graph.h"
#include "partition/import/onnx_weights.h"
#include "proto/base/tensor/shape.h"

namespace runnel::import {

// How a value of the file lies that is (batch, positions, features) here.
enum class Layout {
  kAsHere,
  kPositionsFirst,  // (positions, batch, features); samples of tokens: (positions, batch)
  kRows,            // (positions * batch, features)
};

class GraphFacts {
 public:
  virtual ~GraphFacts() = default;
  virtual const Constants& constants() const = 0;
  // The value that this one is another name of.
  virtual std::string Resolved(const std::string& value) const = 0;
  // With a batch of 1; null: not known.
  virtual const Shape* ShapeOf(const std::string& value) = 0;
  // Of the value by this name, which may be another name of one that lies otherwise.
  virtual Layout LayoutOf(const std::string& value) const = 0;
  // The nodes that read it, by this name.
  virtual const std::vector<const onnx::NodeProto*>& Readers(const std::string& value) const = 0;
};

// What such a part makes of a node.
struct Taken {
  bool is_taken = false;                        // else the node is read as one of its own
  std::optional<FlatOp> op;                     // the operator that is whole with it
  std::optional<Layout> layout = std::nullopt;  // of its output, if not the input's
};

// A constant with one number.
std::optional<double> NumberOf(const GraphFacts& facts, const std::string& value);

// The input of two that is no constant with one number, and that number.
struct WithNumber {
  std::string value;
  double number = 0;
  bool is_second = false;  // the number
};
std::optional<WithNumber> ByNumber(const GraphFacts& facts, const onnx::NodeProto& node);

}  // namespace runnel::import
