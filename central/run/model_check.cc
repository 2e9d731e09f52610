#include "central/run/model_check.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/planning/bandwidth_bits.h"
#include "central/planning/memory_check.h"
#include "central/settings/run_settings.h"
#include "partition/pipeline_model.h"
#include "partition/plan_builder.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {
namespace {

constexpr double kMega = 1e-6;

// Layers take time as they multiply: nothing is measured.
class MacCost final : public CostModel {
 public:
  explicit MacCost(const std::vector<LayerInfo>& layers) {
    for (const LayerInfo& layer : layers)
      sums_.push_back(sums_.back() + static_cast<double>(layer.macs) * 1e-9);
  }
  double StageSeconds(int, int first_layer, int last_layer) const override {
    return sums_[static_cast<size_t>(last_layer) + 1] - sums_[static_cast<size_t>(first_layer)];
  }

 private:
  std::vector<double> sums_ = {0};
};

// Two columns: the recipes that can train the model, and why others cannot.
std::string RecipesText(const ModelSpec& model) {
  std::vector<std::string> able;
  std::string text;
  for (const RecipeFamily& family : RecipeFamilies()) {
    const absl::Status fits = CheckTrainable(model, family);
    if (fits.ok()) {
      able.emplace_back(family.name);
    } else {
      absl::StrAppend(&text, "\nnot by recipe ", family.name, ": ", fits.message());
    }
  }
  return absl::StrCat("recipes that can train it: ", absl::StrJoin(able, ", "), text);
}

// "layers 0-3 12.3 MB" a stage, and the bytes of a step on each link.
absl::StatusOr<std::string> PlanText(const PlanRequest& request) {
  RUNNEL_ASSIGN_OR_RETURN(const PlacedPlan placed, MakePlacedPlan(request));
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(request));
  const size_t stages = placed.plan.stages.size();
  std::vector<std::string> parts, links;
  for (size_t i = 0; i < stages; ++i) {
    const StagePlan& stage = placed.plan.stages[i];
    const StageEnds ends = {stage.first_layer, stage.last_layer,
                            i > 0 ? placed.placement.codecs[i - 1] : -1,
                            i + 1 < stages ? placed.placement.codecs[i] : -1};
    const int64_t bytes =
        StageMemoryBytes(model, HoldOf(model, ends), {stage.cap, stage.deferred_weight_gradients},
                         static_cast<int64_t>(stages - i)) +
        kWorkerBytes;
    parts.push_back(absl::StrFormat("%d-%d %.1f MB", stage.first_layer, stage.last_layer,
                                    static_cast<double>(bytes) * kMega));
    if (i + 1 == stages) continue;
    const auto layer = static_cast<size_t>(stage.last_layer);
    const CodecCost& codec = model.codecs[static_cast<size_t>(placed.placement.codecs[i])];
    const bool returns = stage.last_layer >= model.frozen_front;
    const int64_t a_micro_batch = codec.down_bytes[layer] + (returns ? codec.up_bytes[layer] : 0);
    links.push_back(absl::StrFormat(
        "%.3f MB", static_cast<double>(a_micro_batch * request.micro_batches) * kMega));
  }
  return absl::StrCat(absl::StrJoin(parts, " | "), links.empty() ? "" : "; links ",
                      absl::StrJoin(links, " | "));
}

}  // namespace

absl::StatusOr<ModelSpec> KeptAs(ModelSpec model, const CheckedTraining& training) {
  const auto named = [](absl::string_view flag, const std::string& value,
                        absl::StatusOr<ModelSpec> result) {
    if (result.ok()) return result;
    return absl::StatusOr<ModelSpec>(absl::InvalidArgumentError(
        absl::StrCat(flag, " ", value, ": ", result.status().message())));
  };
  if (!training.stash.empty() && training.stash != "off") {
    RUNNEL_ASSIGN_OR_RETURN(
        model, named("--stash", training.stash, WithStash(std::move(model), training.stash)));
  }
  if (training.recompute.empty() || training.recompute == "off") return model;
  return named("--recompute", training.recompute,
               MarkRecomputed(std::move(model), training.recompute));
}

absl::StatusOr<std::string> TrainingReport(const ModelSpec& model,
                                           const CheckedTraining& training) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> layers, InferShapes(model, 1));
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName recipe, ParseRecipeName(training.recipe));
  if (const absl::Status fits = CheckTrainable(model, *recipe.family); !fits.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--recipe ", training.recipe, ": ", fits.message()));
  }
  RunSettings settings;
  settings.recipe = training.recipe;
  PlanRequest request;
  request.model = &model;
  RUNNEL_ASSIGN_OR_RETURN(request.format, FormatOf(settings));
  request.recipe_memory = MemoryOf(recipe, {});
  RUNNEL_ASSIGN_OR_RETURN(request.policy, FindPolicy("dp"));
  RUNNEL_ASSIGN_OR_RETURN(
      request.schedule,
      FindSchedule(training.schedule.empty() ? settings.schedule : training.schedule));
  request.micro_batches = request.schedule->default_micro_batches;
  request.micro_batch_size =
      (training.batch_size + request.micro_batches - 1) / request.micro_batches;
  RUNNEL_ASSIGN_OR_RETURN(request.codecs, MakeCodecChoice({}, 1, request.format));
  const MacCost cost(layers);
  request.compute = &cost;
  RUNNEL_ASSIGN_OR_RETURN(const int64_t parameters, CountParameters(model));
  RUNNEL_ASSIGN_OR_RETURN(const int64_t macs, CountMacs(model));
  std::string text = absl::StrFormat(
      "%s: %d layers, %d parameters, %.3f million multiply-adds a sample\n%s\n"
      "stages by recipe %s, %s, batches of %d (%d micro-batches a step), no codecs: layers and "
      "peak "
      "memory of each stage; bytes of a step on each link, both ways",
      model.name, model.layer_count(), parameters, static_cast<double>(macs) * kMega,
      RecipesText(model), training.recipe, request.schedule->name, training.batch_size,
      request.micro_batches);
  const auto most = std::min<int64_t>(training.devices, model.layer_count());
  for (int64_t devices = 1; devices <= most; ++devices) {
    request.devices.push_back(DeviceId(static_cast<int>(devices) - 1));
    RUNNEL_ASSIGN_OR_RETURN(const std::string plan, PlanText(request));
    absl::StrAppendFormat(&text, "\n%d: %s", devices, plan);
  }
  return text;
}

}  // namespace runnel
