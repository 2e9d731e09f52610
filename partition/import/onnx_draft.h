#pragma once

// An ONNX graph as far as its nodes were read. For onnx_graph.cc and those that read nodes for it.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx/onnx_pb.h"
#include "partition/import/known_shapes.h"
#include "partition/import/nodes/onnx_channels.h"
#include "partition/import/onnx_facts.h"
#include "partition/import/onnx_windows.h"

namespace runnel::import {

class GraphDraft final : public GraphFacts {
 public:
  // `graph` outlives this.
  explicit GraphDraft(const onnx::GraphProto& graph);

  // The one input that is no weight. InvalidArgument: there are two, or none, or its sizes are open.
  absl::Status ReadInput();

  const Constants& constants() const override { return constants_; }
  std::string Resolved(const std::string& value) const override;
  const Shape* ShapeOf(const std::string& value) override { return shapes_.Find(Resolved(value)); }
  const std::vector<const onnx::NodeProto*>& Readers(const std::string& value) const override;

  Layout LayoutOf(const std::string& value) const override {
    const auto found = layouts_.find(value);
    return found == layouts_.end() ? Layout::kAsHere : found->second;
  }
  void SetLayout(const std::string& value, Layout layout) { layouts_[value] = layout; }

  // Null: the node has no such input, or it is no constant.
  const Constant* ConstantOf(const onnx::NodeProto& node, int input) const {
    return FindConstant(constants_, node, input);
  }
  void SetConstant(const std::string& value, Constant constant) {
    constants_[value] = std::move(constant);
  }
  // The node's inputs if each is a constant, else nothing.
  std::vector<const Constant*> AllConstants(const onnx::NodeProto& node) const;

  absl::StatusOr<Shape> NeedShape(const std::string& value);
  // Of a value that an operator will make which is not there yet.
  void SetShape(const std::string& value, const Shape& shape) { shapes_.Set(value, shape); }

  bool HasTokens() const { return has_tokens_; }
  bool IsOutput(const std::string& value) const {
    return graph_.output_size() > 0 && graph_.output(0).name() == value;
  }
  // Whether the value is (batch, features), or has one position, which is the same here.
  bool IsVector(const std::string& value) const { return vectors_.count(value) > 0; }
  void SetVector(const std::string& value, bool is_vector);

  // Makes the output another name of the value.
  void Alias(const std::string& output, const std::string& value) { aliases_[output] = value; }
  // The node's output is its first input.
  void Alias(const onnx::NodeProto& node) { Alias(node.output(0), Resolved(node.input(0))); }

  // Zeros around a value; empty: none.
  void SetPads(const std::string& value, Pads pads) { padded_[value] = std::move(pads); }
  bool IsPadded(const std::string& value) const { return padded_.count(value) > 0; }
  // What the node's window slides over.
  WindowInput WindowInputOf(const onnx::NodeProto& node);

  // The value that joins two; empty: not made yet.
  std::string& JoinOf(const std::string& a, const std::string& b) { return joined_[{a, b}]; }
  ChannelShuffles& shuffles() { return shuffles_; }

  // An operator of the node's first input that makes its first output.
  FlatOp& Add(const onnx::NodeProto& node, OpKind kind);
  // One with weights, as a reader of nodes gives it.
  absl::Status AddRead(const onnx::NodeProto& node, absl::StatusOr<FlatOp> read);
  // A whole one.
  void Add(FlatOp op);
  std::vector<FlatOp>& ops() { return flat_.ops; }
  // The last operator, if it makes the value; else null.
  FlatOp* Newest(const std::string& value);

  const std::string& input_name() const { return flat_.input_name; }
  const Shape& input() const { return flat_.input; }
  // All of it. output: resolved.
  FlatGraph Take(std::string output);

 private:
  const onnx::GraphProto& graph_;
  FlatGraph flat_;
  bool has_tokens_ = false;
  Constants constants_;
  std::set<std::string> vectors_;  // values without a plane
  std::map<std::string, std::vector<const onnx::NodeProto*>> readers_;
  std::map<std::string, Pads> padded_;  // outputs of Pad nodes; they are aliases too
  std::map<std::pair<std::string, std::string>, std::string> joined_;  // two values, and both
  std::map<std::string, std::string> aliases_;  // values that are other values
  std::map<std::string, Layout> layouts_;
  ChannelShuffles shuffles_;
  KnownShapes shapes_{flat_.ops};
};

}  // namespace runnel::import
