#include "partition/import/nodes/onnx_joins.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "partition/import/nodes/onnx_pointwise.h"
#include "partition/import/patterns/onnx_norms.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

absl::Status NotJoined(absl::string_view what) { return absl::InvalidArgumentError(what); }

void AddRange(const onnx::NodeProto& node, GraphDraft& draft, int output,
              const ChannelRange& range) {
  FlatOp& op = draft.Add(node, OpKind::kSlice);
  op.output = node.output(output);
  draft.SetVector(op.output, draft.IsVector(op.inputs[0]));
  op.spec.begin = range.begin;
  op.spec.out_channels = range.count;
}

}  // namespace

bool IsOfGroups(const onnx::NodeProto& node, GraphDraft& draft) {
  if (draft.shuffles().Has(node.input(0))) return true;
  const Constant* to = draft.ConstantOf(node, 1);
  const Shape* shape = draft.ShapeOf(node.input(0));
  return to != nullptr && shape != nullptr && ChannelShuffles::MakesGroups(to->values, *shape);
}

absl::Status AddGroups(const onnx::NodeProto& node, GraphDraft& draft) {
  const Constant* to = draft.ConstantOf(node, 1);
  if (to == nullptr) return NotJoined("its shape is no constant");
  if (!draft.shuffles().Has(node.input(0))) {
    draft.shuffles().Begin(node.output(0), to->values, draft.Resolved(node.input(0)),
                           *draft.ShapeOf(node.input(0)));
    return absl::OkStatus();
  }
  RUNNEL_ASSIGN_OR_RETURN(const ChannelShuffles::Shuffle shuffle,
                          draft.shuffles().End(node.input(0), to->values));
  if (!shuffle.is_turned) {
    draft.Alias(node.output(0), shuffle.value);
    return absl::OkStatus();
  }
  FlatOp& op = draft.Add(node, OpKind::kShuffle);
  op.inputs = {shuffle.value};
  op.spec.groups = shuffle.groups;
  return absl::OkStatus();
}

absl::Status AddSplit(const onnx::NodeProto& node, GraphDraft& draft) {
  RUNNEL_ASSIGN_OR_RETURN(const Shape x, draft.NeedShape(node.input(0)));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<ChannelRange> ranges,
                          ReadSplit(node, draft.constants(), x));
  for (int i = 0; i < node.output_size(); ++i) {
    if (!draft.Readers(node.output(i)).empty() || draft.IsOutput(node.output(i)))
      AddRange(node, draft, i, ranges[static_cast<size_t>(i)]);
  }
  return absl::OkStatus();
}

absl::Status AddSlice(const onnx::NodeProto& node, GraphDraft& draft) {
  RUNNEL_ASSIGN_OR_RETURN(const Shape x, draft.NeedShape(node.input(0)));
  RUNNEL_ASSIGN_OR_RETURN(const ChannelRange range, ReadSlice(node, draft.constants(), x));
  if (x.rank() > 1 && range.count == x[1]) {
    draft.Alias(node);
  } else {
    AddRange(node, draft, 0, range);
  }
  return absl::OkStatus();
}

// Whether nobody but the node that is being read has this value, so that its constant may go into the
// operator that made it.
bool IsReadOnce(const GraphDraft& draft, const std::string& value) {
  const auto& readers = draft.Readers(value);
  const auto counts = [](const onnx::NodeProto* reader) { return reader->op_type() != "Shape"; };
  return std::count_if(readers.begin(), readers.end(), counts) <= 1 && !draft.IsOutput(value);
}

// The operator that made a value, if a constant that follows may go into it; null: it is not the newest
// one, or others read the value as it is.
FlatOp* OwnerOf(const std::string& value, GraphDraft& draft) {
  const std::string made = draft.Resolved(value);
  if (!IsReadOnce(draft, value) || !IsReadOnce(draft, made)) return nullptr;
  return draft.Newest(made);
}

absl::Status AddSum(const onnx::NodeProto& node, GraphDraft& draft) {
  if (node.input_size() != 2) return NotJoined("needs two inputs");
  for (int constant = 0; constant < 2; ++constant) {
    const Constant* added = draft.ConstantOf(node, constant);
    if (added == nullptr) continue;
    const std::string& input = node.input(1 - constant);
    Constant placed = *added;
    if (draft.LayoutOf(input) != Layout::kAsHere && placed.dims.size() > 1) {
      if (placed.dims.size() != 3 || placed.dims[1] != 1)
        return NotJoined("a constant that is not (positions, 1, features)");
      placed.dims.erase(placed.dims.begin() + 1);
    }
    FlatOp* const op = OwnerOf(input, draft);
    if (op == nullptr || !AddConstantTo(*op, placed))
      return NotJoined("a constant that is no bias, or to a value that others read too");
    draft.Alias(node.output(0), draft.Resolved(input));
    return absl::OkStatus();
  }
  draft.Add(node, OpKind::kAdd).inputs.push_back(draft.Resolved(node.input(1)));
  return absl::OkStatus();
}

absl::Status AddProduct(const onnx::NodeProto& node, GraphDraft& draft) {
  if (node.input_size() != 2) return NotJoined("needs two inputs");
  for (int constant = 0; constant < 2; ++constant) {
    const Constant* scale = draft.ConstantOf(node, constant);
    if (scale == nullptr) continue;
    FlatOp* const op = OwnerOf(node.input(1 - constant), draft);
    const bool is_of_norm = op != nullptr && op->spec.kind == OpKind::kLayerNorm;
    if (!is_of_norm || !SetNormWeight(*op, TensorRole::kScale, *scale))
      return NotJoined("by a constant, or of a value that others read too");
    draft.Alias(node.output(0), draft.Resolved(node.input(1 - constant)));
    return absl::OkStatus();
  }
  std::string first = draft.Resolved(node.input(0)), factor = draft.Resolved(node.input(1));
  if (draft.IsVector(first) && !draft.IsVector(factor)) std::swap(first, factor);
  FlatOp& op = draft.Add(node, OpKind::kMultiply);
  op.inputs = {first, factor};
  draft.SetVector(op.output, draft.IsVector(first));
  return absl::OkStatus();
}

absl::Status AddConcat(const onnx::NodeProto& node, GraphDraft& draft) {
  if (Attributes(node).Int("axis", 0) != 1) return NotJoined("attribute axis, which is not 1");
  for (int i = 0; i < node.input_size(); ++i) {
    if (draft.ConstantOf(node, i) != nullptr) return NotJoined("with a constant");
  }
  std::string joined = draft.Resolved(node.input(0));
  for (int i = 1; i < node.input_size(); ++i) {
    std::string& there = draft.JoinOf(joined, draft.Resolved(node.input(i)));
    if (there.empty()) {
      FlatOp& op = draft.Add(node, OpKind::kConcat);
      op.inputs = {joined, draft.Resolved(node.input(i))};
      if (i + 1 < node.input_size()) op.output = absl::StrCat(node.output(0), ".", i);
      there = op.output;
    }
    joined = there;
  }
  if (joined != node.output(0)) draft.Alias(node.output(0), joined);
  return absl::OkStatus();
}

}  // namespace runnel::import
