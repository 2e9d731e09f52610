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

// Features of a gate that learns (FracTrain's two layers in front of its LSTM, or of what stands for
// it), and the price of a whole block in FP32 for each sample that computes it.
constexpr int64_t kHiddenFeatures = 32;
constexpr int64_t kFeatures = 16;
constexpr double kUsualPrice = 1e-4;

struct Gates {
  std::vector<int32_t> options;  // OpSpec::options
  bool held = false;
  bool has_lstm = false;
  double rate = kUsualPrice;  // the share that is held, or the price of a block of mean size
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
    const bool is_dearer =
        i == 0 || (forward[i] >= forward[i - 1] && backward[i] >= backward[i - 1] &&
                   (forward[i] > forward[i - 1] || backward[i] > backward[i - 1]));
    if (!is_dearer)
      return absl::InvalidArgumentError(
          absl::StrCat("bits fall, or none rises, from option ", i - 1, " to ", i,
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

// "hold:SHARE", "beta:PRICE" or nothing.
absl::Status ParseRule(absl::string_view text, Gates& gates) {
  if (text.empty()) return absl::OkStatus();
  const std::pair<absl::string_view, absl::string_view> rule =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  gates.held = rule.first == "hold";
  const bool is_known = gates.held || rule.first == "beta";
  if (is_known && absl::SimpleAtod(rule.second, &gates.rate) && gates.rate >= 0 && gates.rate <= 1)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'@", text,
                                                 "' is no @hold:SHARE with a share from 0 to 1, "
                                                 "nor @beta:PRICE with a price from 0 to 1"));
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
  RUNNEL_RETURN_IF_ERROR(ParseRule(parts.second, gates));
  if (gates.held && gates.rate > 0 && gates.options[0] != 0)
    return absl::InvalidArgumentError(
        "no option skips, so that none can be held; begin the first list with 0");
  if (!gates.held && gates.options.size() < 4)
    return absl::InvalidArgumentError("a gate that learns chooses among two options or more");
  gates.has_lstm = !gates.held && kind.first == "lstm";
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

// A gate in front of a layer's operators.
class GateOps {
 public:
  explicit GateOps(std::vector<OpSpec>& ops) : ops_(ops) {}

  // Gives the value id.
  int32_t Append(OpSpec op, const std::string& name) {
    op.name = name;
    ops_.push_back(std::move(op));
    return static_cast<int32_t>(ops_.size());
  }

  // The logits of a gate that learns. is_first: no gate in front has a state.
  int32_t AppendLogits(const Gates& gates, bool is_first) {
    int32_t read = Append({.kind = OpKind::kGlobalAvgPool, .inputs = {0}}, "gate.pool");
    read = Linear(read, kHiddenFeatures, "gate.hidden");
    read = Append({.kind = OpKind::kRelu, .inputs = {read}}, "gate.relu");
    read = Linear(read, kFeatures, "gate.features");
    if (gates.has_lstm) read = Lstm(read, is_first);
    return Linear(read, static_cast<int64_t>(gates.options.size()) / 2, "gate.logits");
  }

 private:
  int32_t Linear(int32_t read, int64_t features, const char* name) {
    OpSpec op = {.kind = OpKind::kLinear, .inputs = {read}, .out_channels = features};
    op.bias = true;
    return Append(std::move(op), name);
  }
  int32_t Output(int32_t state, const char* name) {
    return Append({.kind = OpKind::kSlice, .inputs = {state}, .out_channels = kLstmUnits}, name);
  }

  // What an LSTM's units give of the features. The first one begins at a state of zeros.
  int32_t Lstm(int32_t features, bool is_first) {
    int32_t read = features;
    std::vector<int32_t> states;
    if (!is_first) {
      states = {Append({.kind = OpKind::kCarriedState, .inputs = {0}}, "gate.state")};
      const int32_t before = Output(states[0], "gate.before");
      read = Append({.kind = OpKind::kConcat, .inputs = {features, before}}, "gate.joined");
    }
    OpSpec cell = {.kind = OpKind::kLstmCell,
                   .inputs = {Linear(read, 4 * kLstmUnits, "gate.sums")}};
    cell.inputs.insert(cell.inputs.end(), states.begin(), states.end());
    return Output(Append(std::move(cell), "gate.cell"), "gate.output");
  }

  std::vector<OpSpec>& ops_;
};

// The layer with the block's operators, packed, in front of all others.
LayerSpec WithGate(const LayerSpec& layer, const std::vector<size_t>& block, const Gates& gates,
                   bool is_first) {
  LayerSpec result = layer;
  result.ops.clear();
  GateOps ops(result.ops);
  std::vector<int32_t> values(layer.ops.size() + 1);  // of old ids
  OpSpec gate = {.kind = OpKind::kGate, .rate = gates.rate};
  gate.inputs = {gates.held ? 0 : ops.AppendLogits(gates, is_first)};
  gate.options = gates.options;
  gate.held = gates.held;
  const int32_t choice = ops.Append(gate, "gate");
  int32_t last = ops.Append({.kind = OpKind::kPack, .inputs = {0, choice}}, "packed");
  for (size_t op : block) {
    OpSpec copy = layer.ops[op];
    copy.inputs = {last};
    last = ops.Append(std::move(copy), layer.OpName(op));
  }
  values[block.back() + 1] =
      ops.Append({.kind = OpKind::kUnpack, .inputs = {last, choice}}, "unpacked");
  for (size_t op = 0; op < layer.ops.size(); ++op) {
    if (std::find(block.begin(), block.end(), op) != block.end()) continue;
    OpSpec copy = layer.ops[op];
    for (int32_t& input : copy.inputs) input = values[static_cast<size_t>(input)];
    values[op + 1] = ops.Append(std::move(copy), layer.OpName(op));
  }
  return result;
}

// Multiply-adds of a sample's block.
double BlockMacs(const LayerSpec& layer, const LayerInfo& info, const std::vector<size_t>& block) {
  double macs = 0;
  for (const StateTensorSpec& spec : info.state) {
    const auto op = static_cast<size_t>(spec.op);
    const bool is_of_block = std::find(block.begin(), block.end(), op) != block.end();
    if (!is_of_block || layer.ops[op].kind != OpKind::kConv || spec.role != TensorRole::kWeight)
      continue;
    macs += static_cast<double>(info.op_outputs[op].elements()) *
            static_cast<double>(spec.shape.elements() / spec.shape[0]);
  }
  return macs;
}

// What a gate's own sample pays for its block: the price, by the block's share of the mean.
void WeighPrices(const std::vector<std::pair<OpSpec*, double>>& macs_by_gate) {
  double mean = 0;
  for (const auto& [gate, macs] : macs_by_gate)
    mean += macs / static_cast<double>(macs_by_gate.size());
  for (const auto& [gate, macs] : macs_by_gate)
    gate->rate = std::min(1.0, gate->rate * macs / mean);
}

}  // namespace

absl::StatusOr<ModelSpec> AddGates(ModelSpec model, absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(const Gates gates, ParseGates(text));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  std::vector<std::pair<OpSpec*, double>> macs_by_gate;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    LayerSpec& layer = model.layers[i];
    const std::vector<size_t> block = SkippedBy(layer);
    if (block.empty() || layer.frozen) continue;
    if (layer.recompute)
      return absl::InvalidArgumentError(absl::StrCat(
          "layer ", layer.name, " is made again in the backward; leave --recompute or gates out"));
    const double macs = BlockMacs(layer, infos[i], block);
    layer = WithGate(layer, block, gates, macs_by_gate.empty());
    const auto gate = std::find_if(layer.ops.begin(), layer.ops.end(),
                                   [](const OpSpec& op) { return op.kind == OpKind::kGate; });
    macs_by_gate.emplace_back(&*gate, macs);
  }
  if (!gates.held) WeighPrices(macs_by_gate);
  if (macs_by_gate.empty())
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, " has no residual blocks; take one that has, such as ",
                     "resnet20, or leave --gates out"));
  RUNNEL_RETURN_IF_ERROR(InferShapes(model, 1).status());
  return model;
}

}  // namespace runnel
