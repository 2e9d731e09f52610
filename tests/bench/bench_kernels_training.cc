#include "tests/bench/bench_kernels_training.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/recipe.h"
#include "proto/base/quantize.h"
#include "proto/base/status_macros.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::bench {
namespace {

StepContext ContextOf(int64_t batch) {
  StepContext context;
  context.step_samples = batch;
  context.learning_rate = 1e-3;
  context.momentum = 0.9;
  return context;
}

// Either harness offers the same two calls.
template <typename Pipeline>
class PipelineTrainer : public Trainer {
 public:
  PipelineTrainer(std::unique_ptr<Backend> backend, Pipeline pipeline, const Samples& samples)
      : backend_(std::move(backend)),
        pipeline_(std::move(pipeline)),
        samples_(samples),
        context_(ContextOf(samples.batch)) {}

  absl::Status Step() override {
    RUNNEL_RETURN_IF_ERROR(
        pipeline_.ForwardBackward(samples_.x.data(), samples_.labels.data(), context_));
    RUNNEL_RETURN_IF_ERROR(pipeline_.Update(context_));
    context_.sequence = context_.sequence.next();
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<Backend> backend_;
  Pipeline pipeline_;
  const Samples& samples_;
  StepContext context_;
};

void DrawWeights(IntegerPipeline& pipeline) {
  size_t index = 0;
  for (const StateTensor& tensor : pipeline.stages[0].program.state.tensors) {
    if (tensor.spec.role != TensorRole::kWeight) continue;
    const int64_t count = tensor.spec.shape.elements();
    std::vector<float> values = RandomValues(3, index, count);
    const auto fan_in = static_cast<float>(count / tensor.spec.shape[0]);
    for (float& value : values) value *= std::sqrt(2.0f / fan_in);
    Scaled weight;
    weight.mantissas.resize(values.size());
    weight.exponent = Quantize(values, QuantizeRule::kFullRange, absl::MakeSpan(weight.mantissas));
    pipeline.SetWeight(index++, weight);
  }
}

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
  if (!recipe->scaled()) {
    RUNNEL_ASSIGN_OR_RETURN(TestPipeline pipeline,
                            TestPipeline::Make(model, {}, samples.batch, backend.get(), 1));
    return std::make_unique<PipelineTrainer<TestPipeline>>(std::move(backend), std::move(pipeline),
                                                           samples);
  }
  RUNNEL_ASSIGN_OR_RETURN(IntegerPipeline pipeline,
                          IntegerPipeline::Make(model, {}, samples.batch, backend.get(), *recipe));
  DrawWeights(pipeline);
  return std::make_unique<PipelineTrainer<IntegerPipeline>>(std::move(backend), std::move(pipeline),
                                                            samples);
}

}  // namespace runnel::bench
