// Products that rescale their own sums, in whole nets: with speculation and with a period of one
// the bytes are those of dynamic rescaling; kept scales give the same bytes on every backend.

#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/status_macros.h"
#include "tests/kernels/integer_backends.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/random_model.h"
#include "tests/support/case_count.h"

namespace runnel::rescale_bytes_test {
namespace {

// VGG-11's layers with an eighth of its channels.
ModelSpec NarrowVgg11() {
  std::vector<std::vector<OpSpec>> layers;
  for (const auto& [channels, pools] :
       {std::pair(8, true), std::pair(16, true), std::pair(32, false), std::pair(32, true),
        std::pair(64, false), std::pair(64, true), std::pair(64, false), std::pair(64, true)}) {
    layers.push_back({ConvOp(channels, {3, 1, 1}), ReluOp()});
    if (pools) layers.back().push_back(MaxPoolOp({2, 2}, 2));
  }
  layers.push_back({OpOf(OpKind::kFlatten, {0}), LinearOp(64, {1}), OpOf(OpKind::kRelu, {2})});
  layers.push_back({LinearOp(10)});
  return ModelOf({3, 32, 32}, 10, std::move(layers));
}

struct Training {
  ModelSpec model;
  RescaleRule rescale;
  std::vector<int> cuts = {};
  int64_t batch = 4;
  int steps = 5;
  int micro_batches = 1;
  bool alone = false;  // steps in its backward
};

// What training leaves: all weights, the errors and outputs of the stages, the kept scales.
struct Result {
  std::vector<Scaled> tensors;
  std::vector<KeptScale> scales;
  int64_t scratch_bytes = 0;  // of the programs, with their stashes
  int64_t gradient_bytes = 0;
};

void ReadScales(IntegerStage& stage, Result* result) {
  for (const StateTensor& tensor : stage.program.state.tensors) {
    if (tensor.spec.role != TensorRole::kKeptScales) continue;
    for (int64_t i = 0; i < kScalesPerOperator; ++i) {
      result->scales.push_back(*reinterpret_cast<const KeptScale*>(
          stage.bindings[Storage::kStatistics] + tensor.offset_bytes +
          i * static_cast<int64_t>(sizeof(KeptScale))));
    }
  }
}

absl::StatusOr<Result> Train(const Training& t, const std::string& backend_name) {
  auto backend = MakeIntegerBackend(backend_name);
  if (!backend.ok()) return backend.status();
  auto net = IntegerPipeline::Make(t.model, t.cuts, t.batch, backend->get(), **FindRecipe("niti"),
                                   t.micro_batches > 1, t.rescale, {}, t.alone);
  if (!net.ok()) return net.status();
  SetGoldenWeights(*net, 1000);
  StepContext context;
  context.gradient_bits = {3, 4};
  const auto samples = [count = t.batch * t.model.input.elements()](int64_t sequence) {
    // Now and then samples of another size.
    return GoldenValues(9000 + static_cast<uint64_t>(sequence), count, sequence % 5 == 4 ? -3 : -5);
  };
  int64_t sequence = 0;
  for (int step = 0; step < t.steps; ++step) {
    RUNNEL_RETURN_IF_ERROR(
        TrainStep(*net, t.micro_batches, t.batch, t.model.classes, samples, context, sequence));
  }
  Result result;
  for (size_t i = 0; i < net->weight_count(); ++i) result.tensors.push_back(net->Weight(i));
  for (size_t i = 0; i < net->stages.size(); ++i) {
    result.tensors.push_back(net->Output(i));
    if (i > 0) result.tensors.push_back(net->InputGradient(i));
    ReadScales(net->stages[i], &result);
    const Program& program = net->stages[i].program;
    result.scratch_bytes += program.scratch_bytes + program.stash_bytes;
    result.gradient_bytes += program.state.gradient_bytes;
  }
  return result;
}

constexpr RescaleRule kSpeculate = {RescaleMode::kSpeculate};
constexpr RescaleRule kEach = {RescaleMode::kAdaptive, 0, 1};
constexpr RescaleRule kAdaptive = {RescaleMode::kAdaptive, 2, 64};
constexpr RescaleRule kStatic = {RescaleMode::kStatic, 2};

class RescaleBytesTest : public testing::TestWithParam<std::string> {
 protected:
  void ExpectSame(const Training& ours, const absl::StatusOr<Result>& theirs) {
    const auto result = Train(ours, GetParam());
    ASSERT_TRUE(result.ok() && theirs.ok()) << result.status() << theirs.status();
    EXPECT_TRUE(result->tensors == theirs->tensors);
    if (theirs->scales.empty()) return;
    EXPECT_TRUE(result->scales == theirs->scales);
  }
};

TEST_P(RescaleBytesTest, SpeculationAndAPeriodOfOneGiveTheBytesOfDynamic) {
  std::vector<ModelSpec> models = {LeNetModel(), NarrowVgg11()};
  models.resize(CaseCountOf(GetParam(), models.size()));
  for (const ModelSpec& model : models) {
    const auto dynamic = Train({.model = model}, GetParam());
    ExpectSame({.model = model, .rescale = kSpeculate}, dynamic);
    ExpectSame({.model = model, .rescale = kEach}, dynamic);
    // Steps in the backward are for backends of the host.
    const bool host = GetParam().rfind("cpu", 0) == 0 || GetParam() == "ref/1";
    if (host) ExpectSame({.model = model, .alone = true}, dynamic);
    ExpectSame(
        {.model = model, .rescale = kSpeculate, .cuts = {2, 3}, .steps = 4, .micro_batches = 2},
        Train({.model = model, .cuts = {2, 3}, .steps = 4, .micro_batches = 2}, GetParam()));
  }
}

TEST_P(RescaleBytesTest, KeptScalesGiveTheBytesOfRef) {
  static const auto* const kTrainings = new std::vector<Training>{
      {.model = LeNetModel(), .rescale = kAdaptive, .cuts = {1, 3}, .steps = 12},
      {.model = LeNetModel(), .rescale = kStatic, .cuts = {1, 3}, .steps = 6},
      {.model = NarrowVgg11(), .rescale = kAdaptive, .steps = 4},
      {.model = NarrowVgg11(), .rescale = kStatic, .steps = 4}};
  static const auto* const kOfRef = [] {
    auto* results = new std::vector<absl::StatusOr<Result>>;
    for (const Training& training : *kTrainings) results->push_back(Train(training, "ref/1"));
    return results;
  }();
  for (size_t i = 0; i < kTrainings->size(); ++i) ExpectSame((*kTrainings)[i], (*kOfRef)[i]);
}

std::vector<std::string> Names() {
  std::vector<std::string> names = {"cpu,ref@alternate/1", "cpu,ref@random:5/1", kMixedDevice};
  for (const std::string& name : IntegerBackendNames()) {
    const bool dsp = name == "hexagon/1" || name == kDeviceDsp;
    if (name.rfind("cpu", 0) == 0 || name == "ref/1" || dsp) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Backends, RescaleBytesTest, testing::ValuesIn(Names()),
                         [](const auto& info) { return TestNameOf(info.param); });

TEST(Rescale, CutsChangeNeitherWeightsNorScales) {
  Training training = {.model = LeNetModel(), .rescale = kAdaptive, .steps = 12};
  const auto whole = Train(training, "cpu:portable/1");
  training.cuts = {1, 2, 3, 4, 5};
  const auto cut = Train(training, "cpu:portable/1");
  ASSERT_TRUE(whole.ok() && cut.ok());
  EXPECT_TRUE(whole->scales == cut->scales);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(whole->tensors[i] == cut->tensors[i]);
}

TEST(Rescale, ScalesAreKeptAndSaturationForcesNewOnes) {
  const auto kept =
      Train({.model = LeNetModel(), .rescale = kAdaptive, .steps = 30}, "cpu:portable/1");
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_EQ(kept->scales.size(), 8u);
  int kept_steps = 0, forced = 0;
  for (size_t i = 0; i < kept->scales.size(); ++i) {
    const KeptScale& scale = kept->scales[i];
    if (i == 1) {  // nobody reads the gradient of the samples
      EXPECT_EQ(scale, KeptScale());
      continue;
    }
    EXPECT_EQ(scale.step, 30);
    kept_steps += scale.step - scale.measured;
    forced += scale.forced;
  }
  EXPECT_GT(kept_steps, 50);
  EXPECT_GT(forced, 0);
  // So training is not that of dynamic rescaling.
  const auto dynamic = Train({.model = LeNetModel(), .steps = 30}, "cpu:portable/1");
  ASSERT_TRUE(dynamic.ok());
  EXPECT_FALSE(dynamic->tensors == kept->tensors);
}

// VGG-11's sums of one layer at a time would take as much as its largest int32 tensor.
TEST(Rescale, SumsHaveNoMemory) {
  const auto dynamic = Train({.model = NarrowVgg11(), .steps = 1}, "cpu:portable/1");
  const auto fused =
      Train({.model = NarrowVgg11(), .rescale = kSpeculate, .steps = 1}, "cpu:portable/1");
  ASSERT_TRUE(dynamic.ok() && fused.ok());
  const int64_t largest_sums = 4 * 4 * 8 * 32 * 32;  // bytes, samples, channels, plane
  EXPECT_LE(fused->scratch_bytes + largest_sums / 2, dynamic->scratch_bytes);
}

// Each gradient lives until its weight is updated, so the largest one is all the memory they take.
TEST(Rescale, GradientsOfStepsInTheBackwardShareTheirMemory) {
  const auto apart = Train({.model = NarrowVgg11(), .steps = 1}, "cpu:portable/1");
  const auto alone = Train({.model = NarrowVgg11(), .steps = 1, .alone = true}, "cpu:portable/1");
  ASSERT_TRUE(apart.ok() && alone.ok());
  EXPECT_EQ(alone->gradient_bytes, 0);
  const int64_t largest = 4 * 64 * 64 * 9;  // bytes, channels, channels, taps
  EXPECT_LT(alone->scratch_bytes + alone->gradient_bytes + largest,
            apart->scratch_bytes + apart->gradient_bytes);
}

// One executable whose last shift is wrong in every way, against ref.
TEST(Rescale, AWrongGuessIsFound) {
  auto backend = MakeIntegerBackend("cpu:portable/1");
  ASSERT_TRUE(backend.ok());
  const Shape x = {3, 40}, w = {70, 40}, y = {3, 70};
  for (const int shift : {0, 1, 2, 5, 9, 24}) {
    for (const int8_t largest : {int8_t{1}, int8_t{9}, int8_t{127}}) {
      Tensor in = ScaledTensor(x, DType::kInt8), weight = ScaledTensor(w, DType::kInt8);
      Tensor kept = Zeros({kKeptScaleWords}, DType::kInt32);
      reinterpret_cast<KeptScale*>(kept.bytes.data())->shift = shift;  // and measured at once
      kept.storage = Storage::kStatistics;
      weight.storage = Storage::kParameters;
      for (int64_t i = 0; i < x.elements(); ++i) {
        in.data<int8_t>()[i] = static_cast<int8_t>(i % 2 == 0 ? largest : -largest / 2);
      }
      for (int64_t i = 0; i < w.elements(); ++i) {
        weight.data<int8_t>()[i] = static_cast<int8_t>(i % 13 - 6 + i / 40);
      }
      Tensor ours = ScaledTensor(y, DType::kInt8), ref = ours, own = kept;
      OpSpec op;
      op.kind = OpKind::kLinear;
      const auto run = [&](Backend* on, Tensor* out, Tensor* state) {
        return RunOp(OpCode::kInt8LinearForwardRescaled, op, {&in, &weight}, {out, state}, {}, 0, 0,
                     on, {}, {}, kEach);
      };
      ASSERT_TRUE(run(backend->get(), &ours, &own).ok());
      ASSERT_TRUE(run(nullptr, &ref, &kept).ok());
      EXPECT_EQ(ours.bytes, ref.bytes) << shift << " " << int{largest};
      EXPECT_EQ(own.bytes, kept.bytes);
    }
  }
}

}  // namespace
}  // namespace runnel::rescale_bytes_test
