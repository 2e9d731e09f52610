#include "partition/import/onnx_graph.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/import/nodes/onnx_layouts.h"
#include "partition/import/nodes/onnx_operators.h"
#include "partition/import/onnx_draft.h"
#include "partition/import/onnx_folding.h"
#include "partition/import/patterns/onnx_attention.h"
#include "partition/import/patterns/onnx_cross_attention.h"
#include "partition/import/patterns/onnx_gelu.h"
#include "partition/import/patterns/onnx_norms.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

constexpr size_t kMostComplaints = 20;

absl::Status NotFlat(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Reads the nodes in their order and notes what is not supported.
class Flattener final {
 public:
  explicit Flattener(const onnx::GraphProto& graph) : graph_(graph), draft_(graph) {}

  absl::StatusOr<FlatGraph> Run() {
    for (const onnx::TensorProto& tensor : graph_.initializer()) {
      absl::StatusOr<Constant> constant = ReadTensor(tensor);
      if (constant.ok()) {
        draft_.SetConstant(tensor.name(), *std::move(constant));
      } else {
        Complain(absl::StrCat("tensor '", tensor.name(), "': ", constant.status().message()));
      }
    }
    RUNNEL_RETURN_IF_ERROR(CheckNames());
    RUNNEL_RETURN_IF_ERROR(draft_.ReadInput());
    gelus_.Begin(graph_);
    for (int i = 0; i < graph_.node_size(); ++i) {
      const onnx::NodeProto& node = graph_.node(i);
      const absl::Status status = AddNode(node, i + 1 == graph_.node_size());
      if (!status.ok()) {
        Complain(node, i, status.message());
        // Whoever reads it is judged all the same.
        for (const std::string& output : node.output()) draft_.Alias(output, draft_.input_name());
      }
    }
    for (const AttentionForms::Merge& merge : attentions_.merges()) {
      const absl::Status status = MergeLinears(merge, draft_.ops());
      if (!status.ok()) complaints_.emplace_back(status.message());
    }
    if (!complaints_.empty()) {
      if (const std::string product = FindCrossAttention(graph_); !product.empty()) {
        return NotFlat(absl::StrCat("not supported: node ", product,
                                    " (MatMul): attention from one sequence to another, as "
                                    "nn.Transformer has (encoder and decoder); encoders or "
                                    "decoders alone can be trained"));
      }
      if (complaints_.size() > kMostComplaints) {
        complaints_.resize(kMostComplaints);
        complaints_.push_back("...");
      }
      return NotFlat(absl::StrCat("not supported: ", absl::StrJoin(complaints_, "; ")));
    }
    if (graph_.output_size() != 1)
      return NotFlat(absl::StrCat("has ", graph_.output_size(), " outputs, not 1"));
    const std::string& output = graph_.output(0).name();
    if (draft_.IsPadded(output) || draft_.shuffles().Has(output) || IsInside(output))
      return NotFlat("its output is padding, channels in groups, or inside of an operator");
    if (draft_.LayoutOf(output) != Layout::kAsHere)
      return NotFlat("its output has the positions in front of the batch");
    return draft_.Take(draft_.Resolved(output));
  }

 private:
  // Each value is made once, and before it is read.
  absl::Status CheckNames() const {
    std::set<std::string> made = {""};
    for (const auto& input : graph_.input()) made.insert(input.name());
    for (const auto& tensor : graph_.initializer()) made.insert(tensor.name());
    for (const onnx::NodeProto& node : graph_.node()) {
      for (const std::string& input : node.input()) {
        if (!made.contains(input))
          return NotFlat(absl::StrCat("'", input, "' is read, and nothing before makes it"));
      }
      for (const std::string& output : node.output()) {
        if (!output.empty() && !made.insert(output).second)
          return NotFlat(absl::StrCat("'", output, "' is made twice"));
      }
    }
    return absl::OkStatus();
  }

  void Complain(std::string text) { complaints_.push_back(std::move(text)); }
  void Complain(const onnx::NodeProto& node, int index, absl::string_view what) {
    Complain(absl::StrCat("node ", node.name().empty() ? absl::StrCat(index) : node.name(), " (",
                          node.op_type(), "): ", what));
  }
  bool IsInside(const std::string& value) const {
    return norms_.Has(value) || gelus_.Has(value) || attentions_.Has(value);
  }

  // Of values that are no operator's until a later node comes.
  absl::Status CheckReader(const onnx::NodeProto& node) {
    const std::string& type = node.op_type();
    for (const std::string& input : node.input()) {
      if (draft_.IsPadded(input) && type != "Conv" && type != "AveragePool" && type != "MaxPool")
        return NotFlat("of padded values, which only convolutions and means read");
      if (draft_.shuffles().Has(input) && type != "Reshape" && type != "Transpose")
        return NotFlat("of channels in groups, which only a shuffle reads");
    }
    return absl::OkStatus();
  }

  absl::Status AddNode(const onnx::NodeProto& node, bool is_last) {
    if (node.output_size() < 1) return NotFlat("has no output");
    const std::string& type = node.op_type();
    if (type == "Constant") return AddConstant(node, draft_);
    if (node.input_size() < 1) return NotFlat("has no input");
    RUNNEL_RETURN_IF_ERROR(CheckReader(node));
    if (type == "Identity") {
      if (const Constant* constant = draft_.ConstantOf(node, 0)) {
        draft_.SetConstant(node.output(0), Constant(*constant));
      } else {
        draft_.Alias(node);
        draft_.SetLayout(node.output(0), draft_.LayoutOf(node.input(0)));
      }
      return absl::OkStatus();
    }
    if (type == "Shape") return AddShape(node, draft_);
    if (const std::vector<const Constant*> constants = draft_.AllConstants(node);
        !constants.empty()) {
      RUNNEL_ASSIGN_OR_RETURN(Constant folded, Fold(node, constants));
      draft_.SetConstant(node.output(0), std::move(folded));
      return absl::OkStatus();
    }
    RUNNEL_ASSIGN_OR_RETURN(const Layout layout, InputLayout(node, draft_));
    for (const std::string& output : node.output()) draft_.SetLayout(output, layout);
    RUNNEL_ASSIGN_OR_RETURN(const bool is_taken, AddForms(node));
    if (is_taken || TakeLayoutChange(node, draft_)) return absl::OkStatus();
    RUNNEL_RETURN_IF_ERROR(CheckLayout(node, layout));
    if ((type == "Softmax" || type == "LogSoftmax") && is_last) {
      draft_.Alias(node);
      return absl::OkStatus();
    }
    return AddOperator(node, draft_);
  }

  // Exporters ask for those of queries, keys and values.
  void SetPartShapes(const onnx::NodeProto& node) {
    const Shape* of_all = draft_.ShapeOf(node.input(0));
    for (const std::string& output : node.output()) {
      if (of_all == nullptr || !attentions_.IsPart(output)) continue;
      draft_.SetShape(output, Shape({(*of_all)[0], (*of_all)[1], (*of_all)[2] / 3}));
    }
  }

  // Operators that exporters write as several nodes.
  absl::StatusOr<bool> AddForms(const onnx::NodeProto& node) {
    const size_t merges = attentions_.merges().size();
    RUNNEL_ASSIGN_OR_RETURN(Taken taken, norms_.Take(node, draft_));
    if (!taken.is_taken) {
      RUNNEL_ASSIGN_OR_RETURN(taken, gelus_.Take(node, draft_));
    }
    if (!taken.is_taken) {
      RUNNEL_ASSIGN_OR_RETURN(taken, attentions_.Take(node, draft_));
    }
    if (taken.layout.has_value()) draft_.SetLayout(node.output(0), *taken.layout);
    if (!taken.op.has_value()) {
      SetPartShapes(node);
      return taken.is_taken;
    }
    if (attentions_.merges().size() > merges) {
      // They become one when the graph is whole.
      const AttentionForms::Merge& merge = attentions_.merges().back();
      RUNNEL_RETURN_IF_ERROR(MergedLinear(draft_.ops(), merge).status());
      if (const Shape* one = draft_.ShapeOf(merge.from[0]))
        draft_.SetShape(merge.to, Shape({(*one)[0], (*one)[1], 3 * (*one)[2]}));
    }
    draft_.Add(*std::move(taken.op));
    return true;
  }

  const onnx::GraphProto& graph_;
  GraphDraft draft_;
  NormForms norms_;
  GeluForms gelus_;
  AttentionForms attentions_;
  std::vector<std::string> complaints_;
};

}  // namespace

absl::StatusOr<FlatGraph> FlattenGraph(const onnx::GraphProto& graph) {
  return Flattener(graph).Run();
}

}  // namespace runnel::import
