#include "partition/import/patterns/onnx_attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

using Order = std::vector<int64_t>;
const Order kAsReshaped = {0, 1, 2, 3};
const Order kByHead = {0, 2, 1, 3};        // (batch, heads, positions, width)
const Order kByHeadTurned = {0, 2, 3, 1};  // (batch, heads, width, positions)
// Beside scores of a usual size softmax makes a share of exactly 0 of it.
constexpr float kMostMasked = -1e4f;

absl::Status NoAttention(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Whether the axes lie in this order, or in it without the batch.
bool IsIn(const Order& order, const Order& expected) {
  return order == expected ||
         (order.size() == 3 && std::equal(order.begin(), order.end(), expected.begin() + 1));
}

// Sizes of a Reshape with the one that is left open; none: they hold another number of values.
// first: what a 0 in front stands for, a size that stays.
std::vector<int64_t> Filled(absl::Span<const float> to, int64_t elements, int64_t first) {
  std::vector<int64_t> sizes;
  int64_t known = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    const float size = i == 0 && to[i] == 0 ? static_cast<float>(first) : to[i];
    if (!(size == -1 || (size >= 1 && size <= static_cast<float>(elements)))) return {};
    sizes.push_back(static_cast<int64_t>(size));
    if (size != -1) known *= sizes.back();
    if (known > elements) return {};
  }
  if (std::count(sizes.begin(), sizes.end(), -1) > 1) return {};
  for (int64_t& size : sizes) {
    if (size != -1) continue;
    size = elements / known;
    known *= size;
  }
  return known == elements ? sizes : std::vector<int64_t>();
}

// Whether the constant, (..., positions, positions), says of each pair what `masked` says of it.
template <typename Fn>
bool IsCausal(const Constant& mask, Fn is_masked) {
  if (mask.dims.size() < 2) return false;
  const int64_t positions = mask.dims.back();
  if (mask.dims[mask.dims.size() - 2] != positions ||
      static_cast<int64_t>(mask.values.size()) != positions * positions)
    return false;
  for (int64_t t = 0; t < positions; ++t) {
    for (int64_t s = 0; s < positions; ++s) {
      if (!is_masked(mask.values[static_cast<size_t>(t * positions + s)], s > t)) return false;
    }
  }
  return true;
}

bool IsSideOf(const Constant& mask, int64_t positions) {
  return !mask.dims.empty() && mask.dims.back() == positions;
}

}  // namespace

const AttentionForms::Open* AttentionForms::Find(const std::string& value, Step step) const {
  const auto found = open_.find(value);
  return found == open_.end() || found->second.step != step ? nullptr : &found->second;
}

// A Split of (batch, positions, 3 features) into three.
bool AttentionForms::BeginsParts(const onnx::NodeProto& node, GraphFacts& facts) {
  const Shape* shape = facts.ShapeOf(node.input(0));
  const int64_t axis = Attributes(node).Int("axis", 0);
  if (shape == nullptr || shape->rank() != 3 || (axis != 2 && axis != -1)) return false;
  const int64_t features = (*shape)[2] / 3;
  std::vector<int64_t> sizes = Attributes(node).Ints("split", {});
  if (const Constant* given = FindConstant(facts.constants(), node, 1))
    sizes = WholeNumbersOf(*given);
  if (sizes.empty()) sizes = {features, features, features};
  if (node.output_size() != 3 || (*shape)[2] % 3 != 0 || sizes != Order(3, features)) return false;
  for (int part = 0; part < 3; ++part) {
    Open& open = open_[node.output(part)];
    open.sources[0] = {facts.Resolved(node.input(0)), part};
    open.features = features;
  }
  return true;
}

// A Slice of (batch, positions, 3 features) that takes one of three.
bool AttentionForms::BeginsPart(const onnx::NodeProto& node, GraphFacts& facts) {
  const Shape* shape = facts.ShapeOf(node.input(0));
  if (shape == nullptr || shape->rank() != 3 || (*shape)[2] % 3 != 0 || node.input_size() < 4 ||
      node.input_size() > 5)
    return false;
  std::array<double, 4> numbers = {0, 0, 0, 1};  // begin, end, axis, step
  for (int i = 1; i < node.input_size(); ++i) {
    const std::optional<double> number = NumberOf(facts, node.input(i));
    if (!number.has_value()) return false;
    numbers.at(static_cast<size_t>(i - 1)) = *number;
  }
  const auto& [begin, end, axis, step] = numbers;
  const auto all = static_cast<double>((*shape)[2]), features = all / 3;
  if ((axis != 2 && axis != -1) || step != 1) return false;
  for (int part = 0; part < 3; ++part) {
    if (begin != part * features || std::min(end, all) != (part + 1) * features) continue;
    Open& open = open_[node.output(0)];
    open.sources[0] = {facts.Resolved(node.input(0)), part};
    open.features = (*shape)[2] / 3;
    return true;
  }
  return false;
}

// A Reshape of (batch, positions, features), or of a part, to (batch, positions, heads, width); of
// (positions, batch, features) to (positions, batch * heads, width).
bool AttentionForms::BeginsHeads(const onnx::NodeProto& node, GraphFacts& facts) {
  const Open* part = Find(node.input(0), Step::kPart);
  const Shape* shape = facts.ShapeOf(part == nullptr ? node.input(0) : part->sources[0].value);
  const Constant* to = FindConstant(facts.constants(), node, 1);
  const Layout layout = facts.LayoutOf(node.input(0));
  const size_t axes = layout == Layout::kAsHere ? 4 : 3;
  if (shape == nullptr || shape->rank() != 3 || to == nullptr || to->values.size() != axes ||
      layout == Layout::kRows)
    return false;
  const int64_t features = part == nullptr ? (*shape)[2] : part->features;
  const std::vector<int64_t> sizes =
      Filled(to->values, (*shape)[1] * features, axes == 4 ? 1 : (*shape)[1]);
  if (sizes.empty() || (axes == 4 && sizes[0] != 1) || sizes[axes - 3] != (*shape)[1]) return false;
  Open open = part == nullptr ? Open() : *part;
  if (part == nullptr) open.sources[0] = {facts.Resolved(node.input(0)), -1};
  open.step = Step::kHeads;
  open.features = features;
  open.heads = sizes[axes - 2];
  open.order.assign(kAsReshaped.end() - static_cast<int64_t>(axes), kAsReshaped.end());
  open_[node.output(0)] = std::move(open);
  return true;
}

// Scores of queries and keys, or the mix of values by shares.
absl::StatusOr<AttentionForms::Open> AttentionForms::Product(const onnx::NodeProto& node) const {
  const Open* right = Find(node.input(1), Step::kHeads);
  if (const Open* queries = Find(node.input(0), Step::kHeads)) {
    if (right == nullptr || !IsIn(queries->order, kByHead) || !IsIn(right->order, kByHeadTurned) ||
        queries->order.size() != right->order.size() || queries->heads != right->heads ||
        queries->features != right->features)
      return NoAttention("no product of queries and keys by head");
    Open scores = *queries;
    scores.step = Step::kScores;
    scores.sources[1] = right->sources[0];
    scores.scale *= right->scale;
    return scores;
  }
  const Open* shares = Find(node.input(0), Step::kShares);
  if (shares == nullptr || right == nullptr || !IsIn(right->order, kByHead) || right->scale != 1 ||
      shares->order.size() != right->order.size() || shares->heads != right->heads ||
      shares->features != right->features)
    return NoAttention("no product of shares and values by head");
  Open mixed = *shares;
  mixed.step = Step::kMixed;
  mixed.sources[2] = right->sources[0];
  mixed.order = right->order;
  return mixed;
}

// The mask as a constant that is added, or as a condition that chooses between scores and a constant.
absl::StatusOr<AttentionForms::Open> AttentionForms::Masked(const onnx::NodeProto& node,
                                                            GraphFacts& facts) const {
  const absl::Status other = NoAttention("a mask that is not causal, or no constant");
  const Constant* mask = nullptr;
  const Open* scores = nullptr;
  bool is_causal = false;
  if (node.op_type() == "Add") {
    for (int i = 0; i < 2; ++i) {
      if (const Open* found = Find(node.input(i), Step::kScores)) {
        scores = found;
        mask = FindConstant(facts.constants(), node, 1 - i);
      }
    }
    is_causal = mask != nullptr && IsCausal(*mask, [](float value, bool masked) {
                  return masked ? value <= kMostMasked : value == 0;
                });
  } else {
    const bool masks_where_true = Find(node.input(2), Step::kScores) != nullptr;
    scores = Find(node.input(masks_where_true ? 2 : 1), Step::kScores);
    mask = FindConstant(facts.constants(), node, 0);
    const std::optional<double> away = NumberOf(facts, node.input(masks_where_true ? 1 : 2));
    is_causal = mask != nullptr && away.has_value() && *away <= kMostMasked &&
                IsCausal(*mask, [&](float value, bool masked) {
                  return (value != 0) == (masked == masks_where_true);
                });
  }
  if (scores == nullptr || !is_causal) return other;
  const Shape* shape = facts.ShapeOf(scores->sources[0].value);
  if (shape == nullptr || !IsSideOf(*mask, (*shape)[1])) return other;
  Open masked = *scores;
  masked.step = Step::kMasked;
  return masked;
}

// What a node between the heads and their end makes of its open input.
absl::StatusOr<AttentionForms::Open> AttentionForms::Stepped(const onnx::NodeProto& node,
                                                             GraphFacts& facts) const {
  const std::string& type = node.op_type();
  if (type == "MatMul" && node.input_size() == 2) return Product(node);
  if ((type == "Add" && node.input_size() == 2) || (type == "Where" && node.input_size() == 3))
    return Masked(node, facts);
  if (const std::optional<WithNumber> by = ByNumber(facts, node)) {
    const bool divides = type == "Div" && by->is_second && by->number != 0;
    Open open = open_.at(by->value);
    if ((type != "Mul" && !divides) || open.step > Step::kScores)
      return NoAttention("of a value inside an attention");
    open.scale = divides ? open.scale / by->number : open.scale * by->number;
    return open;
  }
  const auto found = open_.find(node.input(0));
  if (found == open_.end()) return NoAttention("of a value inside an attention");
  Open open = found->second;
  if (type == "Transpose" && (open.step == Step::kHeads || open.step == Step::kMixed)) {
    const Order perm = Attributes(node).Ints("perm", {3, 2, 1, 0});
    const auto axes = static_cast<int64_t>(open.order.size());
    const bool fits = perm.size() == open.order.size() &&
                      std::all_of(perm.begin(), perm.end(),
                                  [&](int64_t axis) { return axis >= 0 && axis < axes; });
    if (!fits) return NoAttention(absl::StrCat("attribute perm ", absl::StrJoin(perm, ",")));
    for (size_t i = 0; i < open.order.size(); ++i)
      open.order[i] = found->second.order[static_cast<size_t>(perm[i])];
    return open;
  }
  if (type == "Dropout" && open.step == Step::kShares) {
    const double rate = NumberOf(facts, node.input_size() > 1 ? node.input(1) : "")
                            .value_or(Attributes(node).Real("ratio", 0.5));
    if (rate == 0) return open;
    return NoAttention(absl::StrCat("shares with dropout ", rate, "; 0 is read"));
  }
  if (type != "Softmax") return NoAttention("of a value inside an attention");
  open.sees_all = open.step == Step::kScores;
  const int64_t axis = Attributes(node).Int("axis", -1);
  if ((open.step != Step::kMasked && !open.sees_all) ||
      (axis != static_cast<int64_t>(open.order.size()) - 1 && axis != -1))
    return NoAttention(absl::StrCat("attribute axis ", axis, ", not that of the keys"));
  const double scale =
      std::sqrt(static_cast<double>(open.heads) / static_cast<double>(open.features));
  if (std::abs(open.scale - scale) > 1e-4 * scale)
    return NoAttention(absl::StrCat("scores times ", open.scale, "; 1 / sqrt(width) is ", scale));
  open.step = Step::kShares;
  return open;
}

// Heads together again: the operator.
absl::StatusOr<Taken> AttentionForms::Whole(const onnx::NodeProto& node, const Open& mixed,
                                            GraphFacts& facts) {
  const Shape* shape = facts.ShapeOf(mixed.sources[0].value);
  const Constant* to = FindConstant(facts.constants(), node, 1);
  const absl::Status apart = NoAttention("heads that are not put side by side");
  if (shape == nullptr || to == nullptr || !IsIn(mixed.order, kAsReshaped)) return apart;
  const int64_t positions = (*shape)[1], features = mixed.features;
  Taken taken{true, FlatOp(), Layout::kAsHere};
  if (mixed.order.size() == 4) {
    if (Filled(to->values, positions * features, 1) != Order({1, positions, features}))
      return apart;
  } else {
    const Order sizes = Filled(to->values, positions * features, positions);
    if (sizes != Order({positions, features}) && sizes != Order({positions, 1, features}))
      return apart;
    taken.layout = sizes.size() == 2 ? Layout::kRows : Layout::kPositionsFirst;
  }
  FlatOp& op = *taken.op;
  op.spec.kind = OpKind::kAttention;
  op.spec.heads = mixed.heads;
  op.spec.bidirectional = mixed.sees_all;
  op.output = node.output(0);
  op.name = node.name();
  const auto& [queries, keys, values] = mixed.sources;
  if (queries.part == 0 && keys.part == 1 && values.part == 2 && queries.value == keys.value &&
      keys.value == values.value) {
    op.inputs = {queries.value};
    return taken;
  }
  if (queries.part != -1 || keys.part != -1 || values.part != -1)
    return NoAttention("queries, keys and values in another order, or of several values");
  const Merge merge = {{queries.value, keys.value, values.value},
                       absl::StrCat(queries.value, ".with_keys_and_values")};
  merges_.push_back(merge);
  op.inputs = {merge.to};
  return taken;
}

absl::StatusOr<Taken> AttentionForms::Take(const onnx::NodeProto& node, GraphFacts& facts) {
  const std::string& type = node.op_type();
  bool is_open = false;
  for (const std::string& input : node.input()) is_open = is_open || Has(input);
  if (type == "Split" && !is_open && BeginsParts(node, facts)) return Taken{true, std::nullopt};
  if (type == "Slice" && !is_open && BeginsPart(node, facts)) return Taken{true, std::nullopt};
  const bool may_begin = !is_open || Find(node.input(0), Step::kPart) != nullptr;
  if (type == "Reshape" && may_begin && BeginsHeads(node, facts)) return Taken{true, std::nullopt};
  if (!is_open) return Taken();
  if (const Open* mixed = Find(node.input(0), Step::kMixed); mixed != nullptr && type == "Reshape")
    return Whole(node, *mixed, facts);
  RUNNEL_ASSIGN_OR_RETURN(open_[node.output(0)], Stepped(node, facts));
  return Taken{true, std::nullopt};
}

absl::StatusOr<FlatOp> MergedLinear(const std::vector<FlatOp>& ops,
                                    const AttentionForms::Merge& merge) {
  std::array<const FlatOp*, 3> parts = {};
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const FlatOp& op) {
      return op.output == merge.from[i] && op.spec.kind == OpKind::kLinear;
    });
    if (found == ops.end())
      return NoAttention("queries, keys and values that no linear operators make");
    parts[i] = &*found;
  }
  FlatOp merged = *parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    const FlatOp& part = *parts[i];
    if (part.inputs != merged.inputs || part.spec.out_channels != parts[0]->spec.out_channels ||
        part.spec.bias != merged.spec.bias || &part == parts[i - 1] || &part == parts[0])
      return NoAttention("queries, keys and values of different inputs or sizes");
    for (const auto& [role, values] : part.constants) {
      Constant& all = merged.constants[role];
      if (all.dims.size() != values.dims.size() || all.dims.empty())
        return NoAttention("queries, keys and values of different inputs or sizes");
      all.dims[0] += values.dims[0];
      all.values.insert(all.values.end(), values.values.begin(), values.values.end());
    }
  }
  merged.spec.out_channels *= 3;
  merged.output = merge.to;
  return merged;
}

absl::Status MergeLinears(const AttentionForms::Merge& merge, std::vector<FlatOp>& ops) {
  RUNNEL_ASSIGN_OR_RETURN(FlatOp merged, MergedLinear(ops, merge));
  const auto is_part = [&](const std::string& value) {
    return std::find(merge.from.begin(), merge.from.end(), value) != merge.from.end();
  };
  for (const FlatOp& op : ops) {
    if (std::any_of(op.inputs.begin(), op.inputs.end(), is_part)) {
      return NoAttention(
          absl::StrCat(op.output, ": reads queries, keys or values, which attention reads"));
    }
  }
  const auto first =
      std::find_if(ops.begin(), ops.end(), [&](const FlatOp& op) { return is_part(op.output); });
  *first = std::move(merged);
  ops.erase(std::remove_if(first, ops.end(), [&](const FlatOp& op) { return is_part(op.output); }),
            ops.end());
  return absl::OkStatus();
}

}  // namespace runnel::import
