#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int kFullBits = 32;
constexpr int kMostBits = 16;
constexpr size_t kMostOptions = 8;

struct Gates {
  std::vector<int32_t> options;  // OpSpec::options
  double held_share = 0;
};

absl::StatusOr<std::vector<int>> ParseBits(absl::string_view text) {
  std::vector<int> bits;
  for (absl::string_view one : absl::StrSplit(text, ',')) {
    int number = 0;
    const bool is_number = absl::SimpleAtoi(one, &number);
    if (!is_number || number < 0 || (number > kMostBits && number != kFullBits))
      return absl::InvalidArgumentError(
          absl::StrCat("'", one, "' is none of 0 (skip), 1 to ", kMostBits, " bits and 32"));
    bits.push_back(number);
  }
  return bits;
}

absl::StatusOr<std::vector<int32_t>> ParseOptions(absl::string_view text) {
  const std::vector<absl::string_view> lists = absl::StrSplit(text, '/');
  if (lists.size() != 2)
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no two lists of bits such as 0,3,4,6/6,6,8,12"));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<int> forward, ParseBits(lists[0]));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<int> backward, ParseBits(lists[1]));
  if (forward.size() != backward.size() || forward.size() > kMostOptions)
    return absl::InvalidArgumentError(absl::StrCat(
        forward.size(), " options of weights and activations, ", backward.size(),
        " of gradients; give two lists of equal length, of ", kMostOptions, " options at most"));
  std::vector<int32_t> options;
  for (size_t i = 0; i < forward.size(); ++i) {
    if (i > 0 && (forward[i] <= forward[i - 1] || backward[i] < backward[i - 1]))
      return absl::InvalidArgumentError(
          absl::StrCat("bits fall or stay from option ", i - 1, " to ", i,
                       "; give options from the cheapest to the dearest"));
    const bool is_full = forward[i] == kFullBits && backward[i] == kFullBits;
    const bool has_grids = forward[i] <= kMostBits && backward[i] <= kMostBits && backward[i] > 0;
    if (forward[i] > 0 && !is_full && !has_grids)
      return absl::InvalidArgumentError(
          absl::StrCat("option ", forward[i], "/", backward[i], " is neither 32/32 nor of grids"));
    options.insert(options.end(), {forward[i], backward[i]});
  }
  if (forward.back() == 0)
    return absl::InvalidArgumentError("all options skip; add one that runs, such as 32/32");
  return options;
}

absl::StatusOr<Gates> ParseGates(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> kind =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  if (kind.first != "ff" && kind.first != "lstm")
    return absl::InvalidArgumentError("a gate is ff or lstm, such as ff:0,32/32,32@hold:0.5");
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(kind.second, absl::MaxSplits('@', 1));
  Gates gates;
  RUNNEL_ASSIGN_OR_RETURN(gates.options, ParseOptions(parts.first));
  constexpr absl::string_view kHold = "hold:";
  if (parts.second.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("gates that learn are not there yet; add @hold:SHARE, the share of samples "
                     "that skip a block"));
  const bool is_share = parts.second.substr(0, kHold.size()) == kHold &&
                        absl::SimpleAtod(parts.second.substr(kHold.size()), &gates.held_share) &&
                        gates.held_share >= 0 && gates.held_share <= 1;
  if (!is_share)
    return absl::InvalidArgumentError(
        absl::StrCat("'@", parts.second, "' is no @hold:SHARE with a share from 0 to 1"));
  if (gates.held_share > 0 && gates.options[0] != 0)
    return absl::InvalidArgumentError(
        "no option skips, so that none can be held; begin the first list with 0");
  return gates;
}

bool GoesPacked(OpKind kind) {
  return kind == OpKind::kConv || kind == OpKind::kBatchNorm || kind == OpKind::kRelu ||
         kind == OpKind::kRelu6;
}

// The operators from the layer's input to `value`, each of which reads the one before; empty: there
// is another operator, or one whose value others read as well.
std::vector<size_t> ChainTo(const LayerSpec& layer, int32_t value) {
  std::vector<size_t> chain;
  while (value > 0) {
    const auto op = static_cast<size_t>(value) - 1;
    int readers = 0;
    for (const OpSpec& other : layer.ops)
      readers += static_cast<int>(std::count(other.inputs.begin(), other.inputs.end(), value));
    if (!GoesPacked(layer.ops[op].kind) || readers != 1) return {};
    chain.insert(chain.begin(), op);
    value = layer.ops[op].inputs[0];
  }
  return chain;
}

int64_t Convolutions(const LayerSpec& layer, const std::vector<size_t>& chain) {
  return std::count_if(chain.begin(), chain.end(),
                       [&](size_t op) { return layer.ops[op].kind == OpKind::kConv; });
}

// The operators of a residual block that samples may skip; empty: the layer is none.
std::vector<size_t> SkippedBy(const LayerSpec& layer) {
  for (const OpSpec& sum : layer.ops) {
    if (sum.kind != OpKind::kAdd) continue;
    std::vector<size_t> way = ChainTo(layer, sum.inputs[0]), other = ChainTo(layer, sum.inputs[1]);
    int32_t end = sum.inputs[1];
    if (way.size() < other.size()) {
      std::swap(way, other);
      end = sum.inputs[0];
    }
    const bool has_shortcut = end == 0 || (!other.empty() && Convolutions(layer, other) == 1);
    if (has_shortcut && Convolutions(layer, way) > 1) return way;
  }
  return {};
}

// The layer with the block's operators, packed, in front of all others.
LayerSpec WithGate(const LayerSpec& layer, const std::vector<size_t>& block, const Gates& gates) {
  LayerSpec result = layer;
  result.ops.clear();
  const auto append = [&](OpSpec op, const std::string& name) {
    op.name = name;
    result.ops.push_back(std::move(op));
    return static_cast<int32_t>(result.ops.size());
  };
  std::vector<int32_t> values(layer.ops.size() + 1);  // of old ids
  OpSpec gate = {.kind = OpKind::kGate, .inputs = {0}, .rate = gates.held_share};
  gate.options = gates.options;
  gate.held = true;
  const int32_t choice = append(gate, "gate");
  int32_t last = append({.kind = OpKind::kPack, .inputs = {0, choice}}, "packed");
  for (size_t op : block) {
    OpSpec copy = layer.ops[op];
    copy.inputs = {last};
    last = append(std::move(copy), layer.OpName(op));
  }
  values[block.back() + 1] =
      append({.kind = OpKind::kUnpack, .inputs = {last, choice}}, "unpacked");
  for (size_t op = 0; op < layer.ops.size(); ++op) {
    if (std::find(block.begin(), block.end(), op) != block.end()) continue;
    OpSpec copy = layer.ops[op];
    for (int32_t& input : copy.inputs) input = values[static_cast<size_t>(input)];
    values[op + 1] = append(std::move(copy), layer.OpName(op));
  }
  return result;
}

}  // namespace

absl::StatusOr<ModelSpec> AddGates(ModelSpec model, absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(const Gates gates, ParseGates(text));
  bool any = false;
  for (LayerSpec& layer : model.layers) {
    const std::vector<size_t> block = SkippedBy(layer);
    if (block.empty() || layer.frozen) continue;
    if (layer.recompute)
      return absl::InvalidArgumentError(absl::StrCat(
          "layer ", layer.name, " is made again in the backward; leave --recompute or gates out"));
    any = true;
    layer = WithGate(layer, block, gates);
  }
  if (!any)
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, " has no residual blocks; take one that has, such as ",
                     "resnet20, or leave --gates out"));
  RUNNEL_RETURN_IF_ERROR(InferShapes(model, 1).status());
  return model;
}

}  // namespace runnel
