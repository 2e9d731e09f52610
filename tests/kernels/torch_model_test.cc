// Whole models: gradients, statistics and one optimizer step against LibTorch's autograd, and the
// same bytes wherever a model is cut.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/work_tally.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/random.h"
#include "proto/base/training/precision/gate_options.h"
#include "tests/kernels/random_model.h"
#include "tests/kernels/stage_harness.h"
#include "tests/kernels/torch_oracle.h"

namespace runnel::torch_model_test {
namespace {

constexpr uint64_t kSeed = 20240607;

struct Batch {
  std::vector<float> x;
  std::vector<int32_t> labels;
};

Batch DrawBatch(const ModelSpec& model, int64_t batch, uint64_t index) {
  const CounterRandom random(kSeed, RandomPurpose::kSyntheticData, index, 0);
  Batch result;
  result.x.resize(static_cast<size_t>(batch * model.input.elements()));
  for (size_t i = 0; i < result.x.size(); ++i) {
    result.x[i] = static_cast<float>(random.Normal(i));
    if (model.tokens() == 0) continue;
    const uint32_t token = random.Below(i, static_cast<uint32_t>(model.tokens()));
    std::memcpy(&result.x[i], &token, sizeof(token));
  }
  for (int64_t n = 0; n < batch * *LabelsPerSample(model); ++n) {
    result.labels.push_back(static_cast<int32_t>(random.Below(
        (uint64_t{1} << 40) + static_cast<uint64_t>(n), static_cast<uint32_t>(model.classes))));
  }
  return result;
}

StepContext ContextOf(int64_t sequence, int64_t samples) {
  StepContext context;
  context.run_seed = kSeed;
  context.sequence = Sequence(sequence);
  context.step_labels = samples;
  context.learning_rate = 0.05;
  context.momentum = 0.9;
  context.weight_decay = 5e-4;
  context.label_smoothing = 0.1;
  return context;
}

// Our values of one storage kind, in the shape of the oracle's. `parameters` may be the gradients.
StateValues Collect(TestStage& stage, Storage parameters, bool with_statistics) {
  StateValues result;
  for (const StateTensor& t : stage.program.state.tensors) {
    const bool statistic = t.storage == Storage::kStatistics;
    result.emplace_back();
    if (statistic && !with_statistics) continue;
    const float* p = stage.data(statistic ? t.storage : parameters) + t.offset_bytes / 4;
    result.back().assign(p, p + t.spec.shape.elements());
  }
  return result;
}

double Norm(const std::vector<double>& a) {
  double sum = 0;
  for (double v : a) sum += v * v;
  return std::sqrt(sum);
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> difference(a.size());
  for (size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return Norm(difference);
}

// Bounds. How far single precision may be from the exact value is a property of the network (how it
// amplifies rounding), not of the kernels. So it is measured: LibTorch's own single-precision step
// against its double-precision one. Ours sums in another order, which gives an independent error of
// the same size: a factor of 8 covers the spread of two such errors, and 8 roundings of the layer's
// norm those tensors where LibTorch's happens to be nearly exact. A wrong kernel is off by the
// norm.
//
// That holds while rounding moves no activation across a kink of ReLU: each such flip changes the
// gradients by a jump. So these tests run twice. kSmooth sets batch norm so that what enters an
// activation stays within (0, 6), and the bound above is tight. kUsual has kinks everywhere: a flip
// takes away or adds one of the n terms that an activation of n elements passes back, 1 / sqrt(n)
// of the gradient's norm, and f independent flips sqrt(f) times that. Values within 1e-6 of a kink
// are one in a million of about as many values, so f = 16 is ample. Max pools have kinks in either
// run: where two elements of a window are nearly alike, rounding decides which one gets the gradient.
enum class Init : uint8_t { kSmooth, kUsual };

constexpr double kRounding = std::numeric_limits<float>::epsilon();

// By layer: the norm of all its tensors together.
std::map<int, double> LayerNorms(const StateLayout& layout, const StateValues& values) {
  std::map<int, double> result;
  for (size_t i = 0; i < values.size(); ++i) {
    double& norm = result[layout.tensors[i].layer];
    norm = std::hypot(norm, Norm(values[i]));
  }
  return result;
}

bool HasKinks(OpKind kind, Init init) {
  if (init == Init::kSmooth) return kind == OpKind::kMaxPool;
  return kind == OpKind::kRelu || kind == OpKind::kRelu6;
}

// The size of the jumps, relative to the gradient's norm; 0: nothing has kinks.
double FlipBound(const ModelSpec& model, int64_t batch, Init init) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t smallest = kNone;
  const std::vector<LayerInfo> infos = *InferShapes(model, batch);
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    for (size_t i = 0; i < model.layers[layer].ops.size(); ++i) {
      if (!HasKinks(model.layers[layer].ops[i].kind, init)) continue;
      smallest = std::min(smallest, infos[layer].op_outputs[i].elements());
    }
  }
  return smallest == kNone ? 0 : std::sqrt(16.0 / static_cast<double>(smallest));
}

// `flips` is the bound's part for jumps.
void ExpectAsExactAsLibTorch(double flips, const char* what, const StateLayout& layout,
                             const StateValues& ours, const StateValues& exact,
                             const StateValues& single) {
  ASSERT_EQ(ours.size(), exact.size());
  const std::map<int, double> norms = LayerNorms(layout, exact);
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].size(), exact[i].size());
    const double norm = norms.at(layout.tensors[i].layer);
    const double allowed = 8 * (Distance(single[i], exact[i]) + kRounding * norm) + flips * norm;
    EXPECT_LE(Distance(ours[i], exact[i]), allowed)
        << what << " of layer " << layout.tensors[i].layer << " " << layout.tensors[i].spec.name
        << ", norm of the layer " << norm;
    EXPECT_LE(allowed, (flips > 0 ? 0.2 : 5e-2) * norm + 1e-30) << what << ": the bound is void";
  }
}

void KeepActivationsInside(TestStage& stage) {
  for (const StateTensor& t : stage.program.state.tensors) {
    float* p = stage.data(t.storage) + t.offset_bytes / 4;
    for (int64_t i = 0; i < t.spec.shape.elements(); ++i) {
      if (t.spec.role == TensorRole::kScale) p[i] *= 0.4f;
      if (t.spec.role == TensorRole::kShift) p[i] += 3.0f;
    }
  }
}

struct GradientCase {
  const char* model;
  const char* backend;
  int64_t batch;
  Init init = Init::kUsual;
  const char* rewrite = nullptr;
};
void PrintTo(const GradientCase& c, std::ostream* out) {
  *out << c.model << " on " << c.backend << ", batch " << c.batch
       << (c.init == Init::kSmooth ? ", smooth" : "");
  if (c.rewrite != nullptr) *out << ", " << c.rewrite;
}

ModelSpec ModelOf(const char* name, const char* rewrite) {
  if (std::string(name) == "shapes") return ShapesModel();
  const ModelSpec model = *MakeModel(name);
  return rewrite == nullptr ? model : *Rewrite(model, {rewrite});
}

class GradientTest : public testing::TestWithParam<GradientCase> {};

TEST_P(GradientTest, EqualsAutograd) {
  const auto backend = MakeBackend(GetParam().backend, 1);
  ASSERT_TRUE(backend.ok()) << backend.status();
  const ModelSpec model = ModelOf(GetParam().model, GetParam().rewrite);
  const int64_t batch = GetParam().batch;
  auto pipeline = TestPipeline::Make(model, {}, batch, backend->get(), kSeed);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  TestStage& stage = *pipeline->stages[0];
  const Init init = GetParam().init;
  if (init == Init::kSmooth) KeepActivationsInside(stage);
  const double flips = FlipBound(model, batch, init);
  const StateLayout& layout = stage.program.state;
  TorchOracle exact(model, layout, {.float64 = true}, stage.data(Storage::kParameters),
                    stage.data(Storage::kStatistics));
  TorchOracle single(model, layout, {}, stage.data(Storage::kParameters),
                     stage.data(Storage::kStatistics));

  const Batch data = DrawBatch(model, batch, 0);
  const StepContext context = ContextOf(3, batch * *LabelsPerSample(model));
  const double loss = exact.ForwardBackward(data.x.data(), data.labels.data(), batch, context);
  const double single_loss =
      single.ForwardBackward(data.x.data(), data.labels.data(), batch, context);
  ASSERT_TRUE(pipeline->ForwardBackward(data.x.data(), data.labels.data(), context).ok());

  EXPECT_NEAR(pipeline->Loss(), loss, 8 * (std::abs(single_loss - loss) + kRounding * loss));
  ExpectAsExactAsLibTorch(flips, "gradient", layout, Collect(stage, Storage::kGradients, false),
                          exact.Gradients(), single.Gradients());
  exact.Update(context);
  single.Update(context);
  ASSERT_TRUE(pipeline->Update(context).ok());
  ExpectAsExactAsLibTorch(flips, "state", layout, Collect(stage, Storage::kParameters, true),
                          exact.State(), single.State());
}

// Samples by option of each gate.
struct Choices final : ChoiceTally {
  void AddChoice(const Instruction&, absl::Span<const int64_t> samples) override {
    by_gate.emplace_back(samples.begin(), samples.end());
  }
  std::vector<std::vector<int64_t>> by_gate;
};

// The biases of the gates' logits, gate by gate.
std::vector<float*> LogitBiases(TestPipeline& pipeline) {
  std::vector<float*> biases;
  for (auto& stage : pipeline.stages) {
    for (const StateTensor& tensor : stage->program.state.tensors) {
      if (tensor.spec.name == "gate.logits.bias")
        biases.push_back(stage->data(Storage::kParameters) + tensor.offset_bytes / 4);
    }
  }
  return biases;
}

// Moves the biases so that about half of the samples of each gate run; gives those of option 1.
std::vector<float> BalanceGates(TestPipeline& pipeline, const Batch& data, StepContext context) {
  std::vector<float> result;
  Choices choices;
  context.choices = &choices;
  for (float* bias : LogitBiases(pipeline)) {
    float low = -16, high = 16;
    const size_t gate = result.size();
    for (int step = 0; step < 24; ++step) {
      bias[1] = (low + high) / 2;
      choices.by_gate.clear();
      EXPECT_TRUE(
          pipeline.Forward(Part::kForward, data.x.data(), data.labels.data(), context).ok());
      const std::vector<int64_t>& samples = choices.by_gate.at(gate);
      if (samples[0] == samples[1]) break;
      (samples[1] > samples[0] ? high : low) = bias[1];
    }
    const std::vector<int64_t>& samples = choices.by_gate.at(gate);
    EXPECT_TRUE(samples[0] > 0 && samples[1] > 1) << gate;
    result.push_back(bias[1]);
  }
  return result;
}

// A micro-batch in which no gate explores, which autograd knows nothing of.
StepContext WithoutExploring(const ModelSpec& model, int64_t samples) {
  for (int64_t sequence = 0;; ++sequence) {
    const StepContext context = ContextOf(sequence, samples);
    bool explores = false;
    for (int layer = 0; layer < model.layer_count(); ++layer)
      explores = explores || Explores(GateDraws(context.run_seed, layer, context.sequence));
    if (!explores) return context;
  }
}

// Beside LibTorch's gradients, in double, straight through a one-hot choice: those of each tensor of
// a gate, and of each layer's others, within 1e-4 of their norm. `cuts`: of the pipeline.
void ExpectGatesLikeAutograd(const std::string& gates, const char* backend_name,
                             const std::vector<int>& cuts) {
  SCOPED_TRACE(gates + " on " + backend_name);
  constexpr int64_t kSamples = 16;
  const ModelSpec model = *AddGates(*MakeModel("resnet8"), gates);
  const StepContext context = WithoutExploring(model, kSamples);
  const Batch data = DrawBatch(model, kSamples, 0);
  const auto balancer = *MakeBackend("cpu", 1), backend = *MakeBackend(backend_name, 1);
  auto balanced = *TestPipeline::Make(model, {}, kSamples, balancer.get(), kSeed);
  const std::vector<float> biases = BalanceGates(balanced, data, context);
  TestStage& whole = *balanced.stages[0];
  const StateLayout& layout = whole.program.state;
  auto pipeline = *TestPipeline::Make(model, cuts, kSamples, backend.get(), kSeed);
  for (size_t i = 0; i < biases.size(); ++i) LogitBiases(pipeline).at(i)[1] = biases[i];
  TorchOracle oracle(model, layout, {.float64 = true}, whole.data(Storage::kParameters),
                     whole.data(Storage::kStatistics));
  ASSERT_TRUE(pipeline.ForwardBackward(data.x.data(), data.labels.data(), context).ok());
  oracle.ForwardBackward(data.x.data(), data.labels.data(), kSamples, context);
  const StateValues exact = oracle.Gradients();
  StateValues ours;
  for (auto& stage : pipeline.stages) {
    for (std::vector<double>& tensor : Collect(*stage, Storage::kGradients, false))
      ours.push_back(std::move(tensor));
  }
  const std::map<int, double> norms = LayerNorms(layout, exact);
  ASSERT_EQ(ours.size(), exact.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    const StateTensorSpec& spec = layout.tensors[i].spec;
    const bool is_of_gate = absl::StartsWith(spec.name, "gate.");
    const double norm = is_of_gate ? Norm(exact[i]) : norms.at(layout.tensors[i].layer);
    EXPECT_LE(Distance(ours[i], exact[i]), 1e-4 * norm + 1e-9)
        << "layer " << layout.tensors[i].layer << " " << spec.name << " of norm " << norm;
    if (is_of_gate) {
      EXPECT_GT(norm, 1e-7) << spec.name;
    }
  }
}

TEST(GatesThatLearn, EqualAutogradStraightThroughTheChoice) {
  for (const char* backend : {"cpu", "ref"}) {
    ExpectGatesLikeAutograd("ff:0,32/32,32@beta:0.01", backend, {});
    ExpectGatesLikeAutograd("lstm:0,32/32,32@beta:0.01", backend, {});
    ExpectGatesLikeAutograd("lstm:0,32/32,32@beta:0.01", backend, {2, 3});
  }
}

constexpr GradientCase kGradientCases[] = {
    {"lenet", "torch", 64},
    {"har_cnn", "torch", 64},
    {"mlp", "torch", 64},
    {"bigram", "torch", 8},
    {"bigram", "cpu", 8},
    {"bigram", "ref", 8},
    {"transformer_tiny", "torch", 1},
    {"transformer_tiny", "cpu", 2},
    {"transformer_tiny", "ref", 1},
    {"transformer_tiny", "torch", 1, Init::kUsual, "lora:8"},
    {"transformer_tiny", "cpu", 1, Init::kUsual, "lora:8"},
    {"transformer_tiny", "ref", 1, Init::kUsual, "lora:8"},
    {"lenet", "cpu", 8, Init::kUsual, "lora:4"},
    {"lenet", "ref", 4, Init::kUsual, "lora:4"},
    {"resnet8", "torch", 4},
    {"resnet20", "torch", 4},
    {"ds_cnn", "torch", 4},
    {"mobilenet_v1_128", "torch", 1},
    {"mobilenet_v2", "torch", 64},
    {"mobilenet_v2", "torch", 32, Init::kSmooth},
    {"mobilenet_v2_s1", "torch", 8},
    {"mobilenet_v2_s1", "torch", 8, Init::kSmooth},
    {"mobilenet_v1", "torch", 4},
    {"mobilenet_v3_small", "torch", 64},
    {"mobilenet_v3_small", "ref", 4, Init::kSmooth},
    {"inception_cifar", "torch", 2, Init::kSmooth},
    {"vgg11", "torch", 2},
    {"vgg11_bn", "torch", 4},
    {"vgg11_bn", "torch", 4, Init::kSmooth},
    {"vgg_small_7", "torch", 1},
    {"resnet18", "torch", 2},
    {"resnet18", "torch", 2, Init::kSmooth},
    {"resnet38", "torch", 4},
    {"resnet38", "torch", 4, Init::kSmooth},
    {"resnet74", "torch", 2, Init::kSmooth},
    {"resnet18_nobn", "torch", 1},
    {"shapes", "ref", 4},
    {"shapes", "cpu", 4},
    {"lenet", "ref", 4},
    {"har_cnn", "ref", 16},
    {"mobilenet_v2", "ref", 16, Init::kSmooth},
    {"mobilenet_v2_s1", "ref", 2, Init::kSmooth},
};
INSTANTIATE_TEST_SUITE_P(Zoo, GradientTest, testing::ValuesIn(kGradientCases));

// Larger models have the operators and the wiring of those that are in; they would only take
// longer.
constexpr int64_t kMustBeCoveredMacs = 200'000'000;

TEST(GradientTest, CoversTheZoo) {
  std::vector<std::string> covered;
  for (const GradientCase& c : kGradientCases) covered.emplace_back(c.model);
  for (const ModelRow& row : BuiltinModels()) {
    if (*CountMacs(row.make()) > kMustBeCoveredMacs) continue;
    EXPECT_THAT(covered, testing::Contains(std::string(row.name)))
        << "add the model to the cases above";
  }
}

// `stages` stages of about the same number of layers.
std::vector<int> Cuts(int layers, int stages) {
  std::vector<int> cuts;
  for (int i = 1; i < stages; ++i) cuts.push_back(i * layers / stages);
  return cuts;
}

using Bytes = std::vector<unsigned char>;

// Parameters and statistics, tensor by tensor, after three steps of two micro-batches.
std::vector<Bytes> Train(const ModelSpec& model, const std::vector<int>& cuts, int64_t batch,
                         Backend* backend) {
  auto pipeline = TestPipeline::Make(model, cuts, batch, backend, kSeed);
  EXPECT_TRUE(pipeline.ok()) << pipeline.status();
  if (!pipeline.ok()) return {};
  for (int64_t sequence = 0; sequence < 6; ++sequence) {
    StepContext context = ContextOf(sequence, 2 * batch);
    context.accumulate = sequence % 2 == 1;
    const Batch data = DrawBatch(model, batch, static_cast<uint64_t>(sequence));
    EXPECT_TRUE(pipeline->ForwardBackward(data.x.data(), data.labels.data(), context).ok());
    if (!context.accumulate) continue;
    EXPECT_TRUE(pipeline->Update(context).ok());
  }
  std::vector<Bytes> result;
  for (auto& stage : pipeline->stages) {
    for (const StateTensor& t : stage->program.state.tensors) {
      const auto* p = reinterpret_cast<unsigned char*>(stage->data(t.storage)) + t.offset_bytes;
      result.emplace_back(p, p + t.spec.shape.elements() * 4);
    }
  }
  return result;
}

class CutTest : public testing::TestWithParam<const char*> {};

// What a state of drawn pairs computes, and what its merged weights compute without them.
TEST(Pairs, MergedComputeTheSame) {
  auto backend = MakeBackend("cpu", 1);
  ASSERT_TRUE(backend.ok()) << backend.status();
  for (const char* name : {"transformer_tiny", "lenet"}) {
    ModelSpec model = ModelOf(name, "lora:8");
    auto with = TestPipeline::Make(model, {}, 2, backend->get(), kSeed);
    ASSERT_TRUE(with.ok()) << with.status();
    ModelState state;
    state.layers.resize(model.layers.size());
    TestStage& stage = *with->stages[0];
    for (const StateTensor& t : stage.program.state.tensors) {
      char* bytes = reinterpret_cast<char*>(stage.data(t.storage)) + t.offset_bytes;
      // A tenth of what is drawn: pairs begin at zero and are small beside what they correct.
      auto* values = reinterpret_cast<float*>(bytes);
      for (int64_t e = 0; absl::EndsWith(t.spec.name, ".up.weight") && e < t.spec.shape.elements();
           ++e)
        values[e] *= 0.1f;
      state.layers[t.layer].tensors.push_back(
          {t.spec.name, DType::kFloat32, t.spec.shape,
           std::string(bytes, static_cast<size_t>(t.spec.shape.elements()) * sizeof(float))});
    }
    ASSERT_TRUE(MergePairs(model, state).ok());
    EXPECT_EQ(model.layers[1].ops, MakeModel(name)->layers[1].ops);
    auto merged = TestPipeline::Make(model, {}, 2, backend->get(), kSeed);
    ASSERT_TRUE(merged.ok()) << merged.status();
    TestStage& copy = *merged->stages[0];
    std::vector<size_t> next(model.layers.size());
    for (const StateTensor& t : copy.program.state.tensors) {
      const TensorData& tensor = state.layers[t.layer].tensors.at(next[t.layer]++);
      ASSERT_EQ(tensor.name, t.spec.name);
      std::memcpy(reinterpret_cast<char*>(copy.data(t.storage)) + t.offset_bytes,
                  tensor.bytes.data(), tensor.bytes.size());
    }
    const Batch data = DrawBatch(model, 2, 0);
    const StepContext context = ContextOf(0, 2 * *LabelsPerSample(model));
    for (TestPipeline* pipeline : {&*with, &*merged}) {
      ASSERT_TRUE(
          pipeline->Forward(Part::kForwardEval, data.x.data(), data.labels.data(), context).ok());
    }
    ASSERT_EQ(with->logits.size(), merged->logits.size());
    float largest = 0;
    for (float logit : with->logits) largest = std::max(largest, std::abs(logit));
    for (size_t i = 0; i < with->logits.size(); ++i)
      ASSERT_NEAR(with->logits[i], merged->logits[i], 1e-5 * largest) << name << ", logit " << i;
  }
}

TEST(Pairs, SameBytesWhereverTheModelIsCut) {
  auto backend = MakeBackend("cpu", 1);
  ASSERT_TRUE(backend.ok()) << backend.status();
  const ModelSpec model = ModelOf("transformer_tiny", "lora:8");
  const std::vector<Bytes> whole = Train(model, {}, 1, backend->get());
  EXPECT_TRUE(Train(model, {2, 4}, 1, backend->get()) == whole);
  EXPECT_TRUE(Train(model, {1, 2, 3, 4, 5}, 1, backend->get()) == whole);
}

TEST_P(CutTest, SameBytesWhereverTheModelIsCut) {
  auto backend = MakeBackend("torch", 1);
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto model = MakeModel(GetParam());
  ASSERT_TRUE(model.ok()) << model.status();
  const int64_t batch = *CountMacs(*model) > 100'000'000 ? 2 : 5;
  const std::vector<Bytes> whole = Train(*model, {}, batch, backend->get());
  for (int stages : {2, 4}) {
    EXPECT_TRUE(Train(*model, Cuts(model->layer_count(), stages), batch, backend->get()) == whole)
        << stages << " stages";
  }
  std::vector<int> everywhere;
  for (int i = 1; i < model->layer_count(); ++i) everywhere.push_back(i);
  EXPECT_TRUE(Train(*model, everywhere, batch, backend->get()) == whole) << "every layer alone";
}

TEST(RecomputedLayers, OfADecoderTrainToTheSameBytes) {
  const ModelSpec model = *MakeModel("transformer_tiny");
  ModelSpec again = model;
  for (LayerSpec& layer : again.layers) layer.recompute = true;
  for (const char* name : {"cpu", "ref", "torch"}) {
    auto backend = MakeBackend(name, 1);
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_TRUE(Train(again, {2}, 1, backend->get()) == Train(model, {}, 1, backend->get()))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, CutTest,
                         testing::Values("lenet", "har_cnn", "mobilenet_v2", "mobilenet_v2_s1",
                                         "resnet18"));

}  // namespace
}  // namespace runnel::torch_model_test
