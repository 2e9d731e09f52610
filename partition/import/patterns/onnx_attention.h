#pragma once

// Self-attention, causal or not, which exporters write as some fifteen nodes: three parts of a value,
// or three linear operators; heads apart; products, a scale, a mask, a softmax; heads together. For
// onnx_graph.cc.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "partition/import/onnx_facts.h"

namespace runnel::import {

class AttentionForms {
 public:
  // Queries, keys and values that three linear operators of one input make, which become one.
  struct Merge {
    std::array<std::string, 3> from;
    std::string to;
  };

  // Whether the value lies between these nodes.
  bool Has(const std::string& value) const { return open_.count(value) > 0; }
  // Whether it is the queries, keys or values of all heads, a part of another value.
  bool IsPart(const std::string& value) const { return Find(value, Step::kPart) != nullptr; }
  // Of a node that is one of them; the last one makes the operator. InvalidArgument: what it does to
  // a value that lies between is not what attention does.
  absl::StatusOr<Taken> Take(const onnx::NodeProto& node, GraphFacts& facts);
  // Of the attentions so far, newest last.
  const std::vector<Merge>& merges() const { return merges_; }

 private:
  enum class Step { kPart, kHeads, kScores, kMasked, kShares, kMixed };
  // Of one of queries, keys and values: the value that has it, and which part of that; -1: all.
  struct Source {
    std::string value;
    int part = -1;
  };
  struct Open {
    Step step = Step::kPart;
    std::array<Source, 3> sources;  // one until scores, two until it is mixed
    int64_t features = 0, heads = 0;
    // Of (batch, positions, heads, width): by their places. Without the batch, which stands with the
    // heads then, where the file has the positions in front of it.
    std::vector<int64_t> order;
    double scale = 1;
    bool sees_all = false;
  };
  const Open* Find(const std::string& value, Step step) const;
  bool BeginsParts(const onnx::NodeProto& node, GraphFacts& facts);
  bool BeginsPart(const onnx::NodeProto& node, GraphFacts& facts);
  bool BeginsHeads(const onnx::NodeProto& node, GraphFacts& facts);
  absl::StatusOr<Open> Stepped(const onnx::NodeProto& node, GraphFacts& facts) const;
  absl::StatusOr<Open> Product(const onnx::NodeProto& node) const;
  absl::StatusOr<Open> Masked(const onnx::NodeProto& node, GraphFacts& facts) const;
  absl::StatusOr<Taken> Whole(const onnx::NodeProto& node, const Open& mixed, GraphFacts& facts);

  std::map<std::string, Open> open_;
  std::vector<Merge> merges_;
};

// The three linear operators as one. InvalidArgument: they are none, or of several inputs.
absl::StatusOr<FlatOp> MergedLinear(const std::vector<FlatOp>& ops,
                                    const AttentionForms::Merge& merge);
// Puts it in their place. InvalidArgument: also where others read them.
absl::Status MergeLinears(const AttentionForms::Merge& merge, std::vector<FlatOp>& ops);

}  // namespace runnel::import
