#include "partition/import/nodes/onnx_layouts.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace runnel::import {
namespace {

// Operators of each position's features by themselves.
constexpr absl::string_view kOfEachPosition[] = {
    "Add",       "Cast",   "Clip",        "Dropout",   "Gather",
    "Gelu",      "Gemm",   "HardSigmoid", "HardSwish", "LayerNormalization",
    "LeakyRelu", "MatMul", "Mul",         "Relu",      "Sigmoid"};

bool IsTurn(const onnx::NodeProto& node, int rank) {
  const std::vector<int64_t> perm = Attributes(node).Ints("perm", {});
  return rank == 2 ? perm == std::vector<int64_t>{1, 0} || perm.empty()
                   : perm == std::vector<int64_t>{1, 0, 2};
}

// Of (positions * batch, features) to (positions, batch, features), or of that to the former.
std::optional<Layout> ReshapedTo(const Constant& to, Layout from, const Shape& x) {
  for (const Layout layout : {Layout::kPositionsFirst, Layout::kRows}) {
    const std::vector<int64_t> sizes = SizesAs(layout, x);
    const bool fits = layout != from && std::equal(sizes.begin(), sizes.end(), to.values.begin(),
                                                   to.values.end(), [](int64_t size, float given) {
                                                     return static_cast<float>(size) == given;
                                                   });
    if (fits) return layout;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Layout> InputLayout(const onnx::NodeProto& node, const GraphDraft& draft) {
  std::optional<Layout> layout;
  for (int i = 0; i < node.input_size(); ++i) {
    if (node.input(i).empty() || draft.ConstantOf(node, i) != nullptr) continue;
    const Layout one = draft.LayoutOf(node.input(i));
    if (layout.value_or(one) != one)
      return absl::InvalidArgumentError("of inputs with the batch and the positions in two orders");
    layout = one;
  }
  return layout.value_or(Layout::kAsHere);
}

bool TakeLayoutChange(const onnx::NodeProto& node, GraphDraft& draft) {
  const Shape* shape = draft.ShapeOf(node.input(0));
  const Layout from = draft.LayoutOf(node.input(0));
  if (shape == nullptr) return false;
  Layout to = Layout::kAsHere;
  if (node.op_type() == "Transpose" && from != Layout::kRows) {
    const bool is_of_tokens =
        draft.HasTokens() && draft.Resolved(node.input(0)) == draft.input_name();
    if (!(shape->rank() == 3 || (shape->rank() == 2 && is_of_tokens)) ||
        !IsTurn(node, shape->rank()))
      return false;
    if (from == Layout::kAsHere) to = Layout::kPositionsFirst;
  } else if (node.op_type() == "Reshape" && from != Layout::kAsHere && shape->rank() == 3) {
    const Constant* sizes = draft.ConstantOf(node, 1);
    if (sizes == nullptr) return false;
    const std::optional<Layout> reshaped = ReshapedTo(*sizes, from, *shape);
    if (!reshaped.has_value()) return false;
    to = *reshaped;
  } else {
    return false;
  }
  draft.Alias(node);
  draft.SetLayout(node.output(0), to);
  return true;
}

absl::Status CheckLayout(const onnx::NodeProto& node, Layout layout) {
  if (layout == Layout::kAsHere || std::find(std::begin(kOfEachPosition), std::end(kOfEachPosition),
                                             node.op_type()) != std::end(kOfEachPosition))
    return absl::OkStatus();
  return absl::InvalidArgumentError("of values with the positions in front of the batch");
}

std::vector<int64_t> SizesAs(Layout layout, const Shape& x) {
  std::vector<int64_t> sizes(x.dims().begin(), x.dims().end());
  if (layout == Layout::kAsHere || sizes.size() < 2) return sizes;
  std::swap(sizes[0], sizes[1]);
  if (layout == Layout::kRows) sizes.erase(sizes.begin() + 1);
  return sizes;
}

}  // namespace runnel::import
