#include "proto/base/training/precision/precision_cost.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/precision/gate_options.h"

namespace runnel {
namespace {

constexpr double kFullBits = 32;
constexpr GridBits kEightBits = {8, 8};

struct Product {
  size_t layer = 0;
  size_t op = 0;
  double macs = 0;
  bool frozen = false;
  bool is_depthwise = false;
  bool is_linear = false;
  bool has_grids = true;  // where the recipe has
  int gate = -1;          // the operator whose choice packs what the product reads
};

// The gate by whose choice an operator's input lies packed.
int GateOf(const LayerSpec& layer, size_t op) {
  int32_t value = layer.ops[op].inputs[0];
  while (value > 0) {
    const OpSpec& made_by = layer.ops[static_cast<size_t>(value) - 1];
    if (made_by.kind == OpKind::kUnpack) return -1;
    if (made_by.kind == OpKind::kPack) return made_by.inputs[1] - 1;
    value = made_by.inputs[0];
  }
  return -1;
}

// Convolutions and linear layers of one sample, in the model's order.
std::vector<Product> ProductsOf(const ModelSpec& model, const std::vector<LayerInfo>& infos) {
  std::vector<Product> products;
  for (size_t layer = 0; layer < infos.size(); ++layer) {
    for (const StateTensorSpec& spec : infos[layer].state) {
      const auto op = static_cast<size_t>(spec.op);
      const OpKind kind = model.layers[layer].ops[op].kind;
      if (spec.role != TensorRole::kWeight || (kind != OpKind::kConv && kind != OpKind::kLinear))
        continue;
      const auto outputs = static_cast<double>(infos[layer].op_outputs[op].elements());
      const auto weights = static_cast<double>(spec.shape.elements() / spec.shape[0]);
      const bool is_depthwise =
          model.layers[layer].ops[op].groups > 1 && spec.shape[1] == 1 && kind == OpKind::kConv;
      products.push_back({layer, op, outputs * weights, spec.frozen, is_depthwise,
                          kind == OpKind::kLinear, !LeadsToGate(model.layers[layer], op),
                          GateOf(model.layers[layer], op)});
    }
  }
  return products;
}

void Add(double macs, bool has_input_gradient, bool has_weight_gradient, PassMacs& sum) {
  sum.forward += macs;
  if (has_input_gradient) sum.input_gradient += macs;
  if (has_weight_gradient) sum.weight_gradient += macs;
}

// Where the level's first step is, or a new one.
PrecisionCost::Level& LevelOf(const GridBits& bits, PrecisionCost& cost) {
  const auto known = std::find_if(cost.levels.begin(), cost.levels.end(),
                                  [&](const auto& level) { return level.bits == bits; });
  if (known != cost.levels.end()) return *known;
  cost.levels.push_back({bits});
  return cost.levels.back();
}

SampleMacs::Gated& GatedOf(const ModelSpec& model, const Product& product, SampleMacs& macs) {
  const int layer = static_cast<int>(product.layer);
  if (macs.gated.empty() || macs.gated.back().layer != layer)
    macs.gated.push_back(
        {layer, model.layers[product.layer].ops[static_cast<size_t>(product.gate)], {}});
  return macs.gated.back();
}

ProductSite SiteOf(const Product& product, size_t index, size_t count) {
  ProductSite site{ProductPlace::kInner, product.is_linear};
  if (index == 0) {
    site.place = ProductPlace::kFirst;
  } else if (index + 1 == count) {
    site.place = ProductPlace::kLast;
  } else if (product.is_depthwise) {
    site.place = ProductPlace::kDepthwise;
  }
  return product.has_grids ? site : ProductSite{ProductPlace::kOutside};
}

PassMacs& At(const ProductSite& site, std::vector<SiteMacs>& sites) {
  const auto known = std::find_if(sites.begin(), sites.end(),
                                  [&](const SiteMacs& one) { return one.site == site; });
  return known != sites.end() ? known->macs : sites.emplace_back(SiteMacs{site, {}}).macs;
}

void AddSamples(const PassMacs& of_sample, double samples, PassMacs& sum) {
  sum.forward += samples * of_sample.forward;
  sum.input_gradient += samples * of_sample.input_gradient;
  sum.weight_gradient += samples * of_sample.weight_gradient;
}

}  // namespace

double SumOf(absl::Span<const SiteMacs> sites) {
  double sum = 0;
  for (const SiteMacs& site : sites) sum += site.macs.sum();
  return sum;
}

absl::StatusOr<SampleMacs> SampleMacsOf(const ModelSpec& model) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos, InferShapes(model, 1));
  const std::vector<Product> products = ProductsOf(model, infos);
  SampleMacs macs;
  std::vector<double> others(infos.size());
  for (size_t layer = 0; layer < infos.size(); ++layer)
    others[layer] = static_cast<double>(infos[layer].macs);
  bool trains_before = false;
  for (size_t i = 0; i < products.size(); ++i) {
    const Product& product = products[i];
    const ProductSite site = SiteOf(product, i, products.size());
    Add(product.macs, trains_before, !product.frozen, At(site, macs.all));
    if (product.gate >= 0)
      Add(product.macs, trains_before, !product.frozen,
          At(site, GatedOf(model, product, macs).macs));
    trains_before = trains_before || !product.frozen;
    others[product.layer] -= product.macs;
  }
  // Attention: both operands of its products have a gradient.
  const size_t front = static_cast<size_t>(model.frozen_front());
  for (size_t layer = 0; layer < others.size(); ++layer) {
    if (others[layer] > 0)
      Add(others[layer], layer >= front, layer >= front, At({ProductPlace::kOutside}, macs.all));
  }
  return macs;
}

namespace {

void AddEffective(const PassMacs& macs, const OperandBits& bits, PassMacs& sum) {
  constexpr double kOfBoth = kFullBits * kFullBits;
  sum.forward += macs.forward * bits.weight * bits.activation / kOfBoth;
  sum.input_gradient += macs.input_gradient * bits.gradient * bits.weight / kOfBoth;
  sum.weight_gradient +=
      macs.weight_gradient * bits.gradient_for_weights * bits.activation / kOfBoth;
}

OperandBits BitsAt(const ProductSite& site, const RecipeName& recipe, const GridBits& level) {
  if (recipe.family->operands == nullptr || site.place == ProductPlace::kOutside) return {};
  return recipe.family->operands(recipe.parameters, site, level);
}

// Bits that levels move have 8 of them; others too, unless they are FP32's.
OperandBits EightBitsAt(const ProductSite& site, const RecipeName& recipe) {
  OperandBits bits = BitsAt(site, recipe, kEightBits);
  if (recipe.family->grids.any()) return bits;
  for (double* one : {&bits.weight, &bits.activation, &bits.gradient, &bits.gradient_for_weights})
    if (*one < kFullBits) *one = kEightBits.forward;
  return bits;
}

double MacsOfEightBits(absl::Span<const SiteMacs> sites, const RecipeName& recipe) {
  PassMacs sum;
  for (const SiteMacs& site : sites) AddEffective(site.macs, EightBitsAt(site.site, recipe), sum);
  return sum.sum();
}

}  // namespace

PassMacs EffectiveMacs(absl::Span<const SiteMacs> macs, const RecipeName& recipe,
                       const GridBits& level) {
  PassMacs sum;
  for (const SiteMacs& site : macs) AddEffective(site.macs, BitsAt(site.site, recipe, level), sum);
  return sum;
}

namespace {

// What the gates of a step change: multiply-adds done, and effective ones, less what all samples
// would take in the level.
struct GateSavings {
  double done = 0;
  PassMacs effective;
};

void AddOptions(const SampleMacs::Gated& gated, const RecipeName& recipe, const GridBits& level,
                const TrainingSettings& training, const MicroBatch& place, GateSavings& savings) {
  if (!gated.gate.held) return;
  const double in_full = SumOf(gated.macs);
  const CounterRandom draws = GateDraws(training.seed, gated.layer, place.sequence);
  std::vector<int64_t> samples(static_cast<size_t>(OptionCount(gated.gate)));
  for (int64_t i = 0; i < place.samples; ++i)
    ++samples[static_cast<size_t>(HeldOption(gated.gate, draws, i))];
  const auto all = static_cast<double>(place.samples);
  savings.done -= all * in_full;
  AddSamples(EffectiveMacs(gated.macs, recipe, level), -all, savings.effective);
  for (int option = 0; option < OptionCount(gated.gate); ++option) {
    if (Skips(gated.gate, option)) continue;
    const auto of_option = static_cast<double>(samples[static_cast<size_t>(option)]);
    savings.done += of_option * in_full;
    AddSamples(EffectiveMacs(gated.macs, recipe, BitsOfOption(gated.gate, option)), of_option,
               savings.effective);
  }
}

GateSavings SavingsOf(const SampleMacs& macs, const RecipeName& recipe, const GridBits& level,
                      const TrainingSettings& training, const Batching& batching, int64_t step) {
  GateSavings savings;
  if (macs.gated.empty()) return savings;
  const int64_t end = batching.FirstSequence(step + 1).value();
  for (int64_t s = batching.FirstSequence(step).value(); s < end; ++s) {
    for (const SampleMacs::Gated& gated : macs.gated)
      AddOptions(gated, recipe, level, training, batching.Locate(Sequence(s)), savings);
  }
  return savings;
}

}  // namespace

absl::StatusOr<PrecisionCost> CostOfPrecision(const ModelSpec& model, const RecipeName& recipe,
                                              const TrainingSettings& training,
                                              const std::vector<TrainingChange>& changes,
                                              int64_t steps, absl::Span<const int64_t> marks) {
  RUNNEL_ASSIGN_OR_RETURN(const SampleMacs macs, SampleMacsOf(model));
  if (recipe.family->operands == nullptr && macs.gated.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("products of recipe ", recipe.text, " have no bits known before a run"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const PrecisionSetting setting, ParsePrecision(training.precision));
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(training));
  const double done = SumOf(macs.all);
  const double of_8_8 = MacsOfEightBits(macs.all, recipe);
  PrecisionCost cost;
  cost.gates_learn = std::any_of(macs.gated.begin(), macs.gated.end(),
                                 [](const SampleMacs::Gated& gated) { return !gated.gate.held; });
  for (int64_t step = 0; step < steps; ++step) {
    for (; cost.effective_at.size() < marks.size() && marks[cost.effective_at.size()] <= step;)
      cost.effective_at.push_back(cost.effective.sum());
    const MicroBatch place = batching.Locate(batching.FirstSequence(step));
    const GridBits bits =
        PrecisionAt(setting, changes, training.run_steps, place.epoch, place.step);
    const auto samples = static_cast<double>(place.step_samples);
    const GateSavings savings = SavingsOf(macs, recipe, bits, training, batching, step);
    PassMacs effective = savings.effective;
    AddSamples(EffectiveMacs(macs.all, recipe, bits), samples, effective);
    AddSamples(effective, 1, cost.effective);
    cost.samples += samples;
    cost.macs_in_full += samples * done;
    cost.macs_done += samples * done + savings.done;
    cost.macs_of_8_8 += samples * of_8_8;
    PrecisionCost::Level& level = LevelOf(bits, cost);
    const double share = done > 0 ? effective.sum() / (samples * done) : 0;
    level.effective_share += (share - level.effective_share) / static_cast<double>(++level.steps);
  }
  cost.effective_at.resize(marks.size(), cost.effective.sum());
  cost.turns = std::count_if(changes.begin(), changes.end(), [](const TrainingChange& change) {
    return change.dial == kPrecisionDial;
  });
  return cost;
}

}  // namespace runnel
