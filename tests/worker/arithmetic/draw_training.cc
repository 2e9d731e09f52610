#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/ir/recipe.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "tests/kernels/random_model.h"
#include "tests/support/case_count.h"
#include "tests/worker/arithmetic/drawn_model.h"
#include "tests/worker/arithmetic/drawn_training.h"

namespace runnel {
namespace {

// Multiply-adds of a micro-batch's forward.
constexpr int64_t kMostMacsAtOnce = 40'000'000;
constexpr int64_t kMostMacsOfBlocks = 250'000'000;

const std::vector<std::string>& AllRecipes() {
  static const auto* const recipes = new std::vector<std::string>{
      "fp32",    "fp32",        "fp32",      "fp32",         "bf16",      "fp16",
      "niti",    "niti",        "sbm:8,8,8", "sbm:8,8,8",    "sbm:4,4,6", "sbm_range:8,8,8",
      "ui8",     "octo",        "octo_lac",  "dorefa:4,4,8", "mls:2,4",   "afp",
      "wageubn", "fp8_chunk:64"};
  return *recipes;
}

class TrainingMaker {
 public:
  TrainingMaker(uint64_t seed, const TrainingDraw& draw) : draw_(draw), draws_(seed, 0) {
    drawn_.seed = seed;
  }

  DrawnTraining Make() {
    const std::vector<std::string>& recipes = draw_.recipes.empty() ? AllRecipes() : draw_.recipes;
    drawn_.recipe =
        recipes[static_cast<size_t>(draws_.Below(static_cast<int64_t>(recipes.size())))];
    recipe_ = *FindRecipe(drawn_.recipe);
    do {
      drawn_.model = DrawModel();
    } while (!CheckModel(*recipe_, drawn_.model).ok() || !InferShapes(drawn_.model, 2).ok());
    DrawOptionsOfLayers();
    DrawBatches();
    DrawSettings();
    DrawStages();
    return std::move(drawn_);
  }

 private:
  bool is_integer() const { return recipe_->numbers.integer_parameters(); }

  ModelSpec DrawModel() {
    const int64_t kind = draws_.Below(10);
    const ModelLimits limits = {.norms = !is_integer() && draws_.Chance(75),
                                .biases = !is_integer(),
                                .odd_windows = !draw_.plain && !is_integer()};
    if (draw_.blocks) return DrawImageModel(draws_, limits);
    if (kind == 0 && !draw_.plain) return DrawTokenModel(draws_);
    if (kind <= 2 || !draw_.large)
      return RandomModel(1 + static_cast<uint64_t>(draws_.Below(100'000)));
    return DrawImageModel(draws_, limits);
  }

  void DrawOptionsOfLayers() {
    ModelSpec& model = drawn_.model;
    const bool is_narrow = !is_integer() && !draw_.plain && draws_.Chance(25);
    if (is_narrow) {
      const char* type = draws_.Pick<const char*>({"bf16", "fp16", "e4m3", "e5m2"});
      model = *WithStash(std::move(model), type);
    }
    for (LayerSpec& layer : model.layers) layer.recompute = draws_.Chance(15);
    // Recipes whose values cannot be made again.
    const bool is_legal = CheckModel(*recipe_, model).ok();
    for (LayerSpec& layer : model.layers) layer.recompute = layer.recompute && is_legal;
    const int64_t frozen = draws_.Chance(20) ? draws_.Below(model.layer_count()) : 0;
    for (int64_t i = 0; i < frozen; ++i) model.layers[static_cast<size_t>(i)].frozen = true;
  }

  void DrawBatches() {
    TrainingSettings& training = drawn_.training;
    const auto macs = std::max<int64_t>(1, *CountMacs(drawn_.model));
    int64_t batch = draw_.large ? draws_.Pick<int64_t>({1, 2, 3, 5, 8, 13, 24, 33, 48, 64, 70})
                                : draws_.Pick<int64_t>({1, 2, 3, 5});
    if (draw_.blocks) batch = draws_.Pick<int64_t>({24, 48, 64, 70});
    const int64_t most = draw_.blocks ? kMostMacsOfBlocks : kMostMacsAtOnce;
    batch = std::max<int64_t>(1, std::min(batch, most / macs));
    const int64_t parts = draw_.blocks ? 1 : draws_.Pick<int64_t>({1, 1, 2, 3});
    if (draw_.blocks) drawn_.steps = 1;
    training.min_samples = drawn_.model.has_batch_norm() ? 2 : 1;
    batch = std::max(batch, training.min_samples);
    training.micro_batches = parts;
    training.batch_size = std::max(batch * parts - draws_.Below(2), parts * training.min_samples);
    // The last step of an epoch may be a partial one.
    const int64_t rest = draws_.Chance(30) ? draws_.Below(training.batch_size) : 0;
    training.dataset_samples = drawn_.steps * training.batch_size - rest;
    training.eval_batch_size = draws_.Pick<int64_t>({1, 2, batch, batch + 1});
  }

  void DrawSettings() {
    TrainingSettings& training = drawn_.training;
    training.seed = drawn_.seed;
    training.learning_rate = draws_.Pick<double>({0.05, 0.01});
    training.weight_decay = draws_.Pick<double>({0, 0.01});
    if (is_integer()) {
      training.rescale =
          draws_.Pick<const char*>({"dynamic", "dynamic", "speculate", "adaptive", "static"});
      if (draw_.plain) training.rescale = "dynamic";
      if (draws_.Chance(30))
        training.batch_split =
            absl::StrCat(draw_.plain || draws_.Chance(50) ? "" : "shifted:", draws_.Between(1, 9));
      return;
    }
    training.optimizer = draws_.Pick<const char*>({"sgd", "sgd", "adamw"});
    if (draws_.Chance(15)) training.label_smoothing = 0.1;
    if (draws_.Chance(15)) training.clip_norm = 0.5;
    if (draws_.Chance(15)) training.ema = 0.9;
  }

  void DrawStages() {
    const int layers = drawn_.model.layer_count();
    drawn_.starts = {0};
    for (int64_t i = draws_.Below(3); i > 0; --i) {
      const auto start = static_cast<int>(draws_.Below(layers));
      if (std::count(drawn_.starts.begin(), drawn_.starts.end(), start) == 0)
        drawn_.starts.push_back(start);
    }
    std::sort(drawn_.starts.begin(), drawn_.starts.end());
    drawn_.drains = draws_.Chance(50);
    const bool is_plain_loop = draws_.Chance(35);
    for (int i = 0; i < drawn_.stages(); ++i) {
      drawn_.caps.push_back(is_plain_loop ? 1 : draws_.Between(1, 4));
      drawn_.deferred.push_back(is_plain_loop || draws_.Chance(60) ? 0 : draws_.Between(1, 2));
    }
    if (drawn_.stages() > 1) drawn_.training.clip_norm = 0;  // needs the sum of all stages
  }

  const TrainingDraw draw_;
  Draws draws_;
  DrawnTraining drawn_;
  const Recipe* recipe_ = nullptr;
};

}  // namespace

std::vector<uint64_t> SeedsOf(uint64_t usual) {
  if (const char* seed = std::getenv("RUNNEL_DRAWN_SEED"); seed != nullptr)
    return {std::strtoull(seed, nullptr, 10)};
  std::vector<uint64_t> seeds(CaseCount(usual));
  std::iota(seeds.begin(), seeds.end(), 1);
  return seeds;
}

std::string DrawnTraining::text() const {
  return absl::StrCat("seed ", seed, ": ", recipe, ", ", model.layer_count(), " layers from ",
                      absl::StrJoin(starts, ","), ", ", training.batch_size, " samples a step in ",
                      training.micro_batches, ", caps ", absl::StrJoin(caps, ","), ", deferred ",
                      absl::StrJoin(deferred, ","), drains ? ", drained" : "", ", ",
                      training.optimizer,
                      model.layers[0].stash != DType::kFloat32 ? ", narrow stash" : "",
                      model.frozen_front() > 0 ? ", frozen front" : "");
}

DrawnTraining DrawTraining(uint64_t seed, const TrainingDraw& draw) {
  return TrainingMaker(seed, draw).Make();
}

}  // namespace runnel
