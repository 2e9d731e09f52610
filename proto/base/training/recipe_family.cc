#include "proto/base/training/recipe_family.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/model/rescale.h"
#include "proto/base/model/width_state.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/optimizer.h"
#include "proto/base/training/weight_average.h"

namespace runnel {
namespace {

constexpr NumberFormat kInt8Numbers = {.activation = DType::kInt8,
                                       .parameter = DType::kInt8,
                                       .weight = DType::kInt8,
                                       .error = DType::kInt8,
                                       .weight_gradient = DType::kInt32};

constexpr NumberFormat kBFloat16Numbers = {
    .activation = DType::kBFloat16, .weight = DType::kBFloat16, .error = DType::kBFloat16};
constexpr NumberFormat kFloat16Numbers = {
    .activation = DType::kFloat16, .weight = DType::kFloat16, .error = DType::kFloat16};

constexpr NumberFormat kSmallErrorNumbers = {.has_small_errors = true};

Shape RangeShape(const Shape& /*op_output*/) { return Shape({2}); }
constexpr OperatorState kInputRanges[] = {{"input_range", TensorRole::kInputRange, RangeShape}};
constexpr NumberFormat kRangeNumbers = {.operator_state = kInputRanges};

Shape WidthsShape(const Shape& /*op_output*/) { return Shape({kWidthRows, kWidthWords}); }
constexpr OperatorState kWidths[] = {{"widths", TensorRole::kWidths, WidthsShape}};
constexpr NumberFormat kWidthNumbers = {.operator_state = kWidths};

Shape SampleShape(const Shape& op_output) {
  const auto dims = op_output.dims();
  return *Shape::Create(std::vector<int64_t>(dims.begin() + 1, dims.end()));
}
constexpr OperatorState kCompensations[] = {
    {"gain", TensorRole::kGain, SampleShape, true},
    {"compensation", TensorRole::kCompensation, SampleShape, true},
    {"offset", TensorRole::kCompensation, SampleShape, true}};
constexpr NumberFormat kCompensatedNumbers = {.operator_state = kCompensations};

bool KeepsWidths(const NumberFormat& format) {
  return !format.operator_state.empty() && format.operator_state[0].role == TensorRole::kWidths;
}

bool Always(const OpSpec& /*op*/) { return true; }
bool IsDilated(const OpSpec& op) { return op.is_dilated(); }
bool IsPadded(const OpSpec& op) { return op.is_padded(); }
bool HasBias(const OpSpec& op) { return op.bias; }
bool IsNotHalf(const OpSpec& op) { return op.rate != 0.5 && op.rate != 0; }
bool WindowsOverlap(const OpSpec& op) {
  return op.stride[0] < op.kernel[0] || op.stride[1] < op.kernel[1];
}

// Of zeros follows no scale.
bool BeginsAtZero(const OpSpec& op) { return op.init == InitKind::kNormal && op.init_std == 0; }

// An option of a gate that is neither to skip nor FP32.
bool HasGridOptions(const OpSpec& op) {
  return std::any_of(op.options.begin(), op.options.end(),
                     [](int32_t bits) { return bits != 0 && bits != 32; });
}

constexpr absl::string_view kNoGatesReason =
    "gates train with --recipe fp32 or sbm alone; take one of these, or leave --gates out";
constexpr OperatorLimit kNoGates[] = {{OpKind::kGate, Always, kNoGatesReason},
                                      {OpKind::kLstmCell, Always, kNoGatesReason}};
constexpr OperatorLimit kFp32Limits[] = {
    {OpKind::kGate, HasGridOptions,
     "fp32 has no grids; take --recipe sbm:8,8,16, or options 0,32/32,32"}};
constexpr absl::string_view kBiasReason = "has a bias; integer weights have none";
constexpr absl::string_view kZeroReason =
    "its weight begins at zero, which has no scale; take --recipe fp32";
constexpr OperatorLimit kGridLimits[] = {{OpKind::kLinear, BeginsAtZero, kZeroReason},
                                         {OpKind::kGate, Always, kNoGatesReason},
                                         {OpKind::kLstmCell, Always, kNoGatesReason}};
constexpr OperatorLimit kIntegerLimits[] = {
    {OpKind::kConv, HasBias, kBiasReason},
    {OpKind::kConv, IsDilated, "integers have no dilated products; take --recipe fp32"},
    {OpKind::kLinear, HasBias, kBiasReason},
    {OpKind::kLinear, BeginsAtZero, kZeroReason},
    {OpKind::kBatchNorm, Always, "integers are not normalised; take a model without batch norm"},
    {OpKind::kRelu6, Always, "a bound of 6 means nothing to integers; take a model with relu"},
    {OpKind::kDropout, IsNotHalf, "the rate is not 0.5, which alone an exponent can undo"},
    {OpKind::kAvgPool, WindowsOverlap, "windows overlap"},
    {OpKind::kAvgPool, IsPadded, "an exponent divides by whole windows alone; take --recipe fp32"},
    {OpKind::kEmbedding, Always, "tables are FP32; take --recipe fp32"},
    {OpKind::kLayerNorm, Always, "integers are not normalised; take --recipe fp32"},
    {OpKind::kGelu, Always, "integers have no such curve; take a model with relu"},
    {OpKind::kAttention, Always, "a softmax is FP32; take --recipe fp32"},
    {OpKind::kSigmoid, Always, "integers have no such curve; take --recipe fp32"},
    {OpKind::kHardSigmoid, Always, "integers have no such curve; take --recipe fp32"},
    {OpKind::kLeakyRelu, Always, "integers have no such slope; take a model with relu"},
    {OpKind::kMultiply, Always, "activations are not multiplied in integers; take --recipe fp32"},
    {OpKind::kConcat, Always, "the parts have scales of their own; take --recipe fp32"},
    {OpKind::kSlice, Always, "channels are not parted in integers; take --recipe fp32"},
    {OpKind::kGate, Always, kNoGatesReason},
    {OpKind::kLstmCell, Always, kNoGatesReason},
    {OpKind::kShuffle, Always, "channels are not shuffled in integers; take --recipe fp32"},
};

#define RUNNEL_RECIPE_FAMILY(Id, ...) RecipeFamily{__VA_ARGS__},
constexpr RecipeFamily kFamilies[] = {
#include "proto/base/training/recipe_families.inc"
};
#undef RUNNEL_RECIPE_FAMILY

// Whether `value` is one of the alternatives of a pattern's element.
bool Matches(absl::string_view value, absl::string_view alternatives) {
  for (absl::string_view one : absl::StrSplit(alternatives, '|')) {
    const size_t dots = one.find("..");
    if (dots == absl::string_view::npos) {
      if (value == one) return true;
      continue;
    }
    int64_t low = 0, high = 0, number = 0;
    if (!absl::SimpleAtoi(one.substr(0, dots), &low)) continue;
    if (!absl::SimpleAtoi(one.substr(dots + 2), &high)) continue;
    // "04" and "+4" are no names of 4: one recipe has one name.
    if (!absl::SimpleAtoi(value, &number) || absl::StrCat(number) != value) continue;
    if (number >= low && number <= high) return true;
  }
  return false;
}

// Name and parameters; without a colon the parameters are "".
std::pair<absl::string_view, absl::string_view> Cut(absl::string_view text) {
  const size_t colon = text.find(':');
  if (colon == absl::string_view::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

std::vector<absl::string_view> Elements(absl::string_view parameters) {
  if (parameters.empty()) return {""};
  return absl::StrSplit(parameters, ',');
}

bool MatchesAll(absl::Span<const absl::string_view> values, absl::string_view pattern) {
  const std::vector<absl::string_view> elements = Elements(pattern);
  return std::equal(values.begin(), values.end(), elements.begin(), elements.end(), Matches);
}

// A colon with nothing behind it is a second name of what has none.
bool HasIdleColon(absl::string_view text) { return !text.empty() && text.back() == ':'; }

// Products that are summed up in an int32: of a forward and an input-gradient.
absl::Status CheckAccumulators(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  for (size_t layer = 0; layer < infos.size(); ++layer) {
    for (const StateTensorSpec& spec : infos[layer].state) {
      if (spec.role != TensorRole::kWeight) continue;
      const OpSpec& op = model.layers[layer].ops[static_cast<size_t>(spec.op)];
      const int64_t groups = op.kind == OpKind::kConv ? op.groups : 1;
      const int64_t forward = spec.shape.elements() / spec.shape[0];
      const int64_t backward = spec.shape.elements() / spec.shape[1] / groups;
      const int64_t products = std::max(forward, backward);
      if (products <= kMaxInt32Products) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("model ", model.name, ", layer ", model.layers[layer].name, ", op ", spec.op,
                       " (", Name(op.kind), "): ", products,
                       " products of integers are summed up; 32 bits hold ", kMaxInt32Products));
    }
  }
  return absl::OkStatus();
}

// Bits of a gate's options that the family's grids cannot have.
absl::Status CheckOptions(const OpSpec& gate, const RecipeFamily& family) {
  const GridLimits& limits = family.grids;
  for (size_t i = 0; i + 1 < gate.options.size(); i += 2) {
    const int forward = gate.options[i], backward = gate.options[i + 1];
    const bool fits = forward >= limits.forward_least && forward <= limits.forward_most &&
                      backward >= limits.backward_least && backward <= limits.backward_most;
    const bool is_own = forward == 32 && backward == 32;
    if (is_own && !gate.held) {
      return absl::InvalidArgumentError(
          "option 32/32 of a gate that learns has no price beside grids: write the recipe's bits");
    }
    if (forward == 0 || is_own || fits) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("option ", forward, "/", backward, " of a gate: ", family.name, " has FW ",
                     limits.forward_least, " to ", limits.forward_most, " and BW ",
                     limits.backward_least, " to ", limits.backward_most));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const RecipeFamily> RecipeFamilies() { return kFamilies; }

absl::StatusOr<RecipeName> ParseRecipeName(absl::string_view text) {
  const auto [name, parameters] = Cut(text);
  std::vector<std::string> known;
  for (const RecipeFamily& family : kFamilies) {
    known.push_back(OfferOf(family));
    if (family.name != name) continue;
    const std::vector<absl::string_view> values = Elements(parameters);
    if (!MatchesAll(values, family.parameters) || HasIdleColon(text)) {
      return absl::InvalidArgumentError(
          family.parameters.empty()
              ? absl::StrCat("recipe '", text, "': ", name, " has no parameters")
              : absl::StrCat("recipe '", text, "' does not fit ", OfferOf(family)));
    }
    RecipeName result = {&family, std::string(text), {}};
    if (parameters.empty()) return result;
    for (absl::string_view value : values) result.parameters.emplace_back(value);
    return result;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("recipe '", text, "' is not known; there is ", absl::StrJoin(known, ", ")));
}

NumberFormat FormatOf(const RecipeFamily& family, const TrainingSettings& training) {
  NumberFormat format = family.format;
  const absl::StatusOr<RescaleRule> rule = ParseRescale(training.rescale);
  format.keeps_scales = format.integer_parameters() && rule.ok() && rule->keeps();
  const absl::StatusOr<OptimizerChoice> optimizer = ParseOptimizer(training.optimizer);
  if (optimizer.ok()) {
    format.slots = AveragesWeights(training) ? optimizer->optimizer->slots_with_average()
                                             : optimizer->optimizer->slots();
  }
  format.beside = SideValuesOf(HasCostTarget(training), /*carries_state=*/false);
  return format;
}

NumberFormat FormatOf(const RecipeFamily& family, const TrainingSettings& training,
                      const ModelSpec& model) {
  NumberFormat format = FormatOf(family, training);
  format.beside = SideValuesOf(HasCostTarget(training), CarriesState(model));
  return format;
}

std::string OfferOf(const RecipeFamily& family) {
  return absl::StrCat(family.name, family.parameters.empty() ? "" : ":", family.parameters);
}

bool IsOffered(absl::string_view recipe, absl::Span<const std::string> offers) {
  const auto [name, parameters] = Cut(recipe);
  const std::vector<absl::string_view> values = Elements(parameters);
  for (const std::string& offer : offers) {
    const auto [family, pattern] = Cut(offer);
    if (family == name && MatchesAll(values, pattern) && !HasIdleColon(recipe)) return true;
  }
  return false;
}

std::string RecipeHelp() {
  std::vector<std::string> rows;
  for (const RecipeFamily& family : kFamilies) {
    rows.push_back(absl::StrCat(OfferOf(family), " (", family.summary, ")"));
  }
  return absl::StrJoin(rows, ", ");
}

namespace {

absl::Status CheckStash(const ModelSpec& model, const LayerSpec& layer,
                        const RecipeFamily& family) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, ", layer ", layer.name, ": ", what));
  };
  if (!IsFloat(layer.stash))
    return error(absl::StrCat("nothing is kept as ", Name(layer.stash), ", which is no float"));
  if (IsScaled(family.format.activation))
    return error("integers are kept for the backward as they are; leave --stash out");
  for (const OpSpec& op : layer.ops) {
    if (op.kind == OpKind::kGate)
      return error("what a gate packs is kept as it is; leave --stash or --gates out");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTrainable(const ModelSpec& model, const RecipeFamily& family) {
  for (const LayerSpec& layer : model.layers) {
    if (layer.recompute && IsScaled(family.format.activation)) {
      return absl::InvalidArgumentError(
          absl::StrCat("model ", model.name, ", layer ", layer.name,
                       ": integers are not made again in the backward; leave --recompute out"));
    }
    if (layer.recompute && KeepsWidths(family.format)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model ", model.name, ", layer ", layer.name, ": the widths of ", family.name,
          " have moved on when the backward makes values again; leave --recompute out"));
    }
    if (layer.stash != DType::kFloat32) RUNNEL_RETURN_IF_ERROR(CheckStash(model, layer, family));
    for (size_t i = 0; i < layer.ops.size(); ++i) {
      const OpSpec& op = layer.ops[i];
      if (op.kind == OpKind::kGate && layer.recompute) {
        return absl::InvalidArgumentError(
            absl::StrCat("model ", model.name, ", layer ", layer.name,
                         ": what a gate decides is not made again in the backward; leave "
                         "--recompute or --gates out"));
      }
      if (op.kind == OpKind::kGate && family.grids.any())
        RUNNEL_RETURN_IF_ERROR(CheckOptions(op, family));
      for (const OperatorLimit& limit : family.limits) {
        if (limit.op != op.kind || !limit.applies(op)) continue;
        return absl::InvalidArgumentError(absl::StrCat("model ", model.name, ", layer ", layer.name,
                                                       ", op ", i, " (", Name(op.kind),
                                                       "): ", limit.reason));
      }
    }
  }
  if (!IsScaled(family.format.weight)) return absl::OkStatus();
  return CheckAccumulators(model);
}

}  // namespace runnel
