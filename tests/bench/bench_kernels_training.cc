#include "tests/bench/bench_kernels_training.h"

#include <cstring>
#include <utility>

#include "absl/types/span.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/recipe.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/payload.h"
#include "tests/kernels/random_model.h"
#include "worker/stage/plain_loop.h"
#include "worker/stage/stage_executor.h"

namespace runnel::bench {
namespace {

// Of the one batch that is trained again and again.
TrainingSettings SettingsFor(int64_t batch) {
  TrainingSettings settings;
  settings.dataset_samples = settings.batch_size = settings.eval_batch_size = batch;
  settings.micro_batches = 1;
  settings.learning_rate = 1e-3;
  settings.momentum = 0.9;
  return settings;
}

template <typename T>
Payload PayloadOf(const std::vector<T>& values) {
  return Payload::CopyOf(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                             values.size() * sizeof(T)));
}

// What a worker does in the plain loop.
class WorkerTrainer : public Trainer {
 public:
  static absl::StatusOr<std::unique_ptr<Trainer>> Make(const ModelSpec& model, const Recipe& recipe,
                                                       std::unique_ptr<Backend> backend,
                                                       const Samples& samples) {
    const TrainingSettings settings = SettingsFor(samples.batch);
    RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(settings));
    std::unique_ptr<WorkerTrainer> trainer(
        new WorkerTrainer(batching, std::move(backend), samples));
    StageExecutorOptions options;
    options.model = model;
    options.last_layer = model.layer_count() - 1;
    options.training = settings;
    options.recipe = &recipe;
    options.one_in_flight = true;
    RUNNEL_ASSIGN_OR_RETURN(
        trainer->executor_,
        StageExecutor::Create(std::move(options), trainer->backend_.get(), &trainer->pool_));
    RUNNEL_ASSIGN_OR_RETURN(const ModelState state,
                            InitialState(model, 1, trainer->executor_->numbers()));
    RUNNEL_RETURN_IF_ERROR(trainer->executor_->ImportState(state));
    return trainer;
  }

  absl::Status Step() override {
    RUNNEL_RETURN_IF_ERROR(
        TrainMicroBatch(*executor_, batching_.Locate(sequence_), input_, labels_).status());
    sequence_ = sequence_.next();
    return absl::OkStatus();
  }

 private:
  WorkerTrainer(const Batching& batching, std::unique_ptr<Backend> backend, const Samples& samples)
      : batching_(batching),
        backend_(std::move(backend)),
        input_(PayloadOf(samples.x)),
        labels_(PayloadOf(samples.labels)) {}

  Batching batching_;
  std::unique_ptr<Backend> backend_;
  BufferPool pool_;
  Payload input_, labels_;
  std::unique_ptr<StageExecutor> executor_;
  Sequence sequence_;
};

}  // namespace

Samples::Samples(const ModelSpec& model, int64_t batch_size)
    : batch(batch_size),
      x(RandomValues(1, 0, batch_size * model.input.elements())),
      labels(RandomLabels(1, 1, batch_size, model.classes)) {}

absl::StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const ModelSpec& model,
                                                     const std::string& recipe_name,
                                                     const std::string& backend_name, int threads,
                                                     const Samples& samples) {
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(recipe_name));
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(backend_name, threads));
  return WorkerTrainer::Make(model, *recipe, std::move(backend), samples);
}

}  // namespace runnel::bench
