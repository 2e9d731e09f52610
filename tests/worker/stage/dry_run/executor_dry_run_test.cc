// A dry run reads gradients and leaves a stage as it was.

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "partition/zoo/zoo.h"
#include "worker/measure/random_tensors.h"
#include "worker/stage/stage_executor.h"

namespace runnel::executor_dry_run_test {
namespace {

constexpr int64_t kSamples = 4;

// A whole model as one stage: batch norm, dropout. Steps are plain: weights less gradients.
class Stage {
 public:
  Stage(const std::string& backend, const std::string& recipe, bool steps_in_backward)
      : backend_(*MakeBackend(backend, 1)) {
    StageExecutorOptions options;
    options.model = model_;
    options.last_layer = model_.layer_count() - 1;
    options.training.batch_size = kSamples;
    options.training.dataset_samples = 8 * kSamples;
    options.training.learning_rate = 1;
    options.training.momentum = 0;
    options.training.weight_decay = 0;
    options.recipe = FindRecipe(recipe).value();
    options.one_in_flight = steps_in_backward;
    batching_ = MakeBatching(options.training).value();
    executor_ = *StageExecutor::Create(options, backend_.get(), &pool_);
    EXPECT_TRUE(executor_->DrawState().ok());
  }
  StageExecutor* operator->() { return executor_.get(); }

  void Run(int64_t sequence, bool step) {
    const MicroBatch place = batching_->Locate(Sequence(sequence));
    const auto stream = static_cast<uint64_t>(sequence);
    const int64_t elements = executor_->input_shape(kSamples).elements();
    const auto forward = executor_->Forward(place, RandomTensor(pool_, elements, stream),
                                            RandomLabels(pool_, kSamples, model_.classes, stream));
    ASSERT_TRUE(forward.ok()) << forward.status();
    ASSERT_TRUE(executor_->InputGradient(place, Payload()).ok());
    ASSERT_TRUE(executor_->WeightGradient(place, step).ok());
  }
  std::vector<float> DryGradients(int64_t sequence) {
    std::vector<float> gradients;
    EXPECT_TRUE(executor_->BeginDryRun().ok());
    Run(sequence + 1, false);  // another one before it leaves no trace
    Run(sequence, false);
    EXPECT_TRUE(executor_->ReadGradients(gradients).ok());
    EXPECT_TRUE(executor_->EndDryRun().ok());
    return gradients;
  }
  ModelState State() { return executor_->ExportState().value(); }
  // Trained weights, one tensor after the other.
  std::vector<float> Weights() {
    std::vector<float> weights;
    const ModelState state = State();
    const std::vector<LayerInfo> infos = InferShapes(model_, 1).value();
    for (const LayerState& layer : state.layers) {
      const auto& specs = infos[static_cast<size_t>(layer.layer)].state;
      for (size_t t = 0; t < specs.size(); ++t) {
        if (!HasSlots(specs[t])) continue;
        const auto* values = reinterpret_cast<const float*>(layer.tensors[t].bytes.data());
        weights.insert(weights.end(), values, values + specs[t].shape.elements());
      }
    }
    return weights;
  }

 private:
  const ModelSpec model_ = MakeModel("ds_cnn").value();
  std::unique_ptr<Backend> backend_;
  BufferPool pool_;
  std::optional<Batching> batching_;
  std::unique_ptr<StageExecutor> executor_;
};

TEST(ExecutorDryRun, GradientsAreThoseThatAStepTakes) {
  for (const char* backend : {"ref", "cpu"}) {
    for (const bool steps_in_backward : {false, true}) {
      SCOPED_TRACE(testing::Message() << backend << steps_in_backward);
      Stage stage(backend, "fp32", steps_in_backward);
      const std::vector<float> gradients = stage.DryGradients(0);
      const std::vector<float> before = stage.Weights();
      stage.Run(0, true);
      const std::vector<float> after = stage.Weights();
      ASSERT_EQ(gradients.size(), before.size());
      double square = 0;
      for (size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_NEAR(before[i] - after[i], gradients[i], 1e-6 + 1e-6 * std::abs(before[i])) << i;
        square += gradients[i] * gradients[i];
      }
      EXPECT_GT(square, 0);
    }
  }
}

TEST(ExecutorDryRun, LeavesNoTrace) {
  for (const char* recipe : {"fp32", "bf16", "fp16", "dorefa:4,4,4"}) {
    for (const bool steps_in_backward : {false, true}) {
      SCOPED_TRACE(testing::Message() << recipe << steps_in_backward);
      Stage with("cpu", recipe, steps_in_backward), without("cpu", recipe, steps_in_backward);
      for (int64_t sequence = 0; sequence < 4; ++sequence) {
        const ModelState before = with.State();
        with.DryGradients(sequence);
        EXPECT_EQ(with.State(), before) << sequence;
        with.Run(sequence, true);
        without.Run(sequence, true);
        EXPECT_EQ(with.State(), without.State()) << sequence;
      }
      EXPECT_EQ(with->memory_bytes(), without->memory_bytes());
      Telemetry dry, plain;
      with->FillRange(dry);
      without->FillRange(plain);
      EXPECT_EQ(dry.gradient_values, plain.gradient_values);
      EXPECT_EQ(dry.gradients_saturated, plain.gradients_saturated);
      EXPECT_EQ(dry.gradient_underflows, plain.gradient_underflows);
      EXPECT_EQ(dry.effective_macs, plain.effective_macs);
    }
  }
}

TEST(ExecutorDryRun, IntegersAreRefused) {
  StageExecutorOptions options;
  options.model = MakeModel("lenet").value();
  options.last_layer = options.model.layer_count() - 1;
  options.training.batch_size = kSamples;
  options.training.dataset_samples = 8 * kSamples;
  options.recipe = FindRecipe("niti").value();
  const auto backend = *MakeBackend("cpu", 1);
  BufferPool pool;
  const auto executor = *StageExecutor::Create(options, backend.get(), &pool);
  EXPECT_TRUE(absl::IsUnimplemented(executor->BeginDryRun()));
}

}  // namespace
}  // namespace runnel::executor_dry_run_test
