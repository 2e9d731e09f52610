#include "worker/measure/backend_check.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/recipe.h"
#include "proto/base/status_macros.h"
#include "worker/measure/random_tensors.h"
#include "worker/stage/stage_executor.h"

namespace runnel {
namespace {

constexpr int64_t kSamples = 5;
constexpr int64_t kSteps = 2;  // the second one uses weights that the backend has changed

// Odd sizes, a stride and padding: edges of tiles, and channels that fill no vector.
ModelSpec SmallModel() {
  OpSpec conv = {.kind = OpKind::kConv, .inputs = {0}, .out_channels = 13};
  conv.kernel = {3, 3};
  conv.stride = {2, 2};
  conv.padding = {1, 1};
  const OpSpec relu = {.kind = OpKind::kRelu, .inputs = {1}};
  const OpSpec flatten = {.kind = OpKind::kFlatten, .inputs = {0}};
  const OpSpec linear = {.kind = OpKind::kLinear, .inputs = {1}, .out_channels = 11};
  ModelSpec model;
  model.name = "backend_check";
  model.input = {5, 9, 9};
  model.classes = 11;
  model.layers = {{"convolution", {conv, relu}}, {"product", {flatten, linear}}};
  return model;
}

struct Result {
  std::vector<double> losses;  // by step
  ModelState state;
};

absl::StatusOr<Result> Train(const ModelSpec& model, Backend& backend) {
  BufferPool pool;
  StageExecutorOptions options;
  options.model = model;
  options.last_layer = model.layer_count() - 1;
  options.training.batch_size = kSamples;
  options.training.dataset_samples = kSamples * kSteps;
  RUNNEL_ASSIGN_OR_RETURN(options.recipe, FindRecipe("niti"));
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(options.training));
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<StageExecutor> executor,
                          StageExecutor::Create(options, &backend, &pool));
  RUNNEL_RETURN_IF_ERROR(executor->DrawState());
  const NumberFormat samples;  // FP32
  Result result;
  for (int64_t step = 0; step < kSteps; ++step) {
    const MicroBatch place = batching.Locate(Sequence(step));
    const auto stream = static_cast<uint64_t>(step);
    RUNNEL_ASSIGN_OR_RETURN(
        const StageCompute::Output forward,
        executor->Forward(place,
                          RandomBoundary(pool, samples, executor->input_shape(kSamples), stream),
                          RandomLabels(pool, kSamples, model.classes, stream)));
    RUNNEL_RETURN_IF_ERROR(executor->InputGradient(place, Payload()).status());
    RUNNEL_RETURN_IF_ERROR(executor->WeightGradient(place, /*step=*/true));
    result.losses.push_back(forward.loss_sum);
  }
  RUNNEL_ASSIGN_OR_RETURN(result.state, executor->ExportState());
  return result;
}

absl::Status CompareTensors(const std::string& layer, const TensorData& got,
                            const TensorData& wanted) {
  for (size_t i = 0; i < wanted.bytes.size(); ++i) {
    if (got.bytes[i] == wanted.bytes[i]) continue;
    return absl::DataLossError(absl::StrCat(
        "computes integers wrong: after ", kSteps, " steps byte ", i, " of ", wanted.bytes.size(),
        " of the ", layer, "'s ", wanted.name, " is ", int{static_cast<int8_t>(got.bytes[i])},
        ", on ref ", int{static_cast<int8_t>(wanted.bytes[i])}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBackend(Backend& backend) {
  const ModelSpec model = SmallModel();
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> ref, MakeBackend("ref", 1));
  RUNNEL_ASSIGN_OR_RETURN(const Result wanted, Train(model, *ref));
  RUNNEL_ASSIGN_OR_RETURN(const Result got, Train(model, backend));
  for (size_t layer = 0; layer < wanted.state.layers.size(); ++layer) {
    const std::vector<TensorData>& tensors = wanted.state.layers[layer].tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
      RUNNEL_RETURN_IF_ERROR(
          CompareTensors(model.layers[layer].name, got.state.layers[layer].tensors[i], tensors[i]));
    }
  }
  if (got.losses == wanted.losses) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("computes integers wrong: the loss of step 1 is ",
                                          got.losses.front(), ", on ref ", wanted.losses.front()));
}

}  // namespace runnel
