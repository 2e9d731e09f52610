// Packed weights that the cpu backend keeps between evaluations, and evaluations without: the same
// bytes, and no memory of them once something trains.

#include "kernels/backends/cpu/kept_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backends/cpu/cpu_backend.h"
#include "partition/zoo/zoo.h"
#include "tests/kernels/cpu/capped_cpu.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"

namespace runnel::kept_weights_test {
namespace {

// Logits. weights: StepContext::weights.
std::vector<float> Evaluate(TestPipeline& pipeline, int64_t batch, int64_t weights,
                            Part part = Part::kForwardEval) {
  const std::vector<float> x = RandomValues(3, 0, pipeline.stages[0]->program.input.elements());
  const std::vector<int32_t> labels(static_cast<size_t>(batch));
  StepContext context;
  context.weights = weights;
  const absl::Status status = pipeline.Forward(part, x.data(), labels.data(), context);
  EXPECT_TRUE(status.ok()) << status;
  return pipeline.logits;
}

// Makes the weights of the first stage others.
void NegateAndDouble(TestPipeline& pipeline) {
  TestStage& stage = *pipeline.stages[0];
  for (const StateTensor& tensor : stage.program.state.tensors) {
    if (tensor.spec.shape.rank() < 2) continue;
    float* values = stage.data(Storage::kParameters) + tensor.offset_bytes / 4;
    for (int64_t i = 0; i < tensor.spec.shape.elements(); ++i) values[i] *= -2;
  }
}

// Equal bytes say nothing where weights are packed anew.
TEST(KeptWeights, PackedWeightsAreKeptUntilTheyHaveAnotherName) {
  const ModelSpec model = *MakeModel("lenet");
  const auto plain = Cpu(CpuInstructionSets().front(), 1, false);
  const auto fused = Cpu(CpuInstructionSets().front(), 1, true);
  auto apart = TestPipeline::Make(model, {}, 1, plain.get(), 3);
  auto kept = TestPipeline::Make(model, {}, 1, fused.get(), 3);
  const std::vector<float> before = Evaluate(*kept, 1, 1);
  NegateAndDouble(*apart);
  NegateAndDouble(*kept);
  ExpectSame(before, Evaluate(*kept, 1, 1), "the same name");
  const std::vector<float> after = Evaluate(*apart, 1, 0);
  EXPECT_NE(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
  ExpectSame(after, Evaluate(*kept, 1, 2), "another name");
  ExpectSame(after, Evaluate(*kept, 1, 0), "no name");
}

// Training runs a frozen front with the sums of evaluation: logits of both are the same bytes where
// all layers are of the front.
TEST(KeptWeights, AFrozenFrontTrainsAsItEvaluates) {
  ModelSpec model = *MakeModel("resnet8");
  model.input = {model.input[0], 44, 44};
  for (LayerSpec& layer : model.layers) layer.frozen = true;
  const auto backend = Cpu(CpuInstructionSets().front(), 1, true);
  auto pipeline = TestPipeline::Make(model, {}, 2, backend.get(), 3);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  const std::vector<float> trained = Evaluate(*pipeline, 2, 0, Part::kForward);
  ExpectSame(trained, Evaluate(*pipeline, 2, 0), "evaluated");
  ExpectSame(trained, Evaluate(*pipeline, 2, 1), "with kept weights");
}

// A run without a name frees what programs of other batch sizes have kept: a name that comes again
// finds nothing.
TEST(KeptWeights, TrainingFreesKeptWeights) {
  const ModelSpec model = *MakeModel("lenet");
  const auto backend = Cpu(CpuInstructionSets().front(), 1, true);
  auto evaluates = TestPipeline::Make(model, {}, 1, backend.get(), 3);
  auto trains = TestPipeline::Make(model, {}, 2, backend.get(), 3);
  const std::vector<float> before = Evaluate(*evaluates, 1, 1);
  NegateAndDouble(*evaluates);
  ExpectSame(before, Evaluate(*evaluates, 1, 1), "kept");
  Evaluate(*trains, 2, 0, Part::kForward);
  const std::vector<float> after = Evaluate(*evaluates, 1, 1);
  EXPECT_NE(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0);
}

TEST(KeptWeights, AKeptWeightHasOneSize) {
  cpu::KeptWeights kept;
  const Buffer weight = {Storage::kParameters, DType::kFloat32, {4}};
  int made = 0;
  const auto make = [&](float*) { ++made; };
  float* const four = kept.Of(weight, 4, make);
  EXPECT_NE(four, nullptr);
  EXPECT_EQ(kept.Of(weight, 4, make), four);
  EXPECT_EQ(kept.Of(weight, 5, make), nullptr);
  EXPECT_EQ(made, 1);
}

// Filters that are not kept are transformed some panels at a time: of so many channels, in several
// turns.
TEST(KeptWeights, FiltersOfManyChannelsGiveTheBytesOfKeptOnes) {
  const ModelSpec model = ModelOf(
      {3, 10, 10}, 4,
      {{ConvOp(260, {.kernel = 1}), ConvOp(330, {.kernel = 3, .stride = 1, .padding = 1}, 1),
        OpOf(OpKind::kFlatten, {2}), LinearOp(4, {3})}});
  for (const std::string& cap : CpuInstructionSets()) {
    for (const int threads : {1, 3}) {
      const auto backend = Cpu(cap, threads, true);
      auto pipeline = TestPipeline::Make(model, {}, 1, backend.get(), 3);
      ASSERT_TRUE(pipeline.ok()) << pipeline.status();
      const std::vector<float> kept = Evaluate(*pipeline, 1, 1);
      ExpectSame(kept, Evaluate(*pipeline, 1, 0), "not kept");
    }
  }
}

}  // namespace
}  // namespace runnel::kept_weights_test
