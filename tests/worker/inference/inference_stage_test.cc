// Stages of models in integers: cut anywhere, they give what the whole graph gives, bit for bit;
// what does not fit is refused.

#include "worker/inference/inference_stage.h"

#include <cstring>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "central/records/quantized_stages.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/models/quantize/quantizer.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/inference.pb.h"
#include "tests/kernels/inference/run_graph.h"
#include "tests/kernels/random_model.h"
#include "worker/inference/graph_convert.h"
#include "worker/inference/inference_profile.h"

namespace runnel::inference_stage_test {
namespace {

using inference::Int8Graph;
using ::testing::HasSubstr;

struct Quantized {
  ModelSpec model;
  Int8Graph graph;
  QuantizedStages stages;
  std::vector<float> samples;
  int64_t batch = 3;
};

Quantized Make(const ModelSpec& model, uint64_t seed, const inference::QuantizeOptions& options,
               bool fold = true) {
  Quantized made;
  made.model = model;
  const inference::FoldedGraph folded =
      inference::FoldModel(model, InitialState(model, seed).value(), fold).value();
  made.samples = RandomValues(seed, 0, made.batch * model.input.elements());
  inference::Quantizer quantizer(folded, options);
  for (int pass = 0; pass < quantizer.passes(); ++pass)
    quantizer.Observe(pass, made.samples, made.batch);
  made.graph = quantizer.Finish().value();
  absl::StatusOr<QuantizedStages> stages = CutAtLayers(model, SerializeGraph(made.graph));
  EXPECT_TRUE(stages.ok()) << stages.status();
  made.stages = *std::move(stages);
  return made;
}

inference::QuantizeOptions OptionsOf(uint64_t seed) {
  inference::QuantizeOptions options;
  options.calibration = inference::ParseCalibration("absmax").value();
  if (seed % 3 == 1) options.scheme = inference::Scheme::kAsymmetric;
  if (seed % 3 == 2) options.winograd = inference::WinogradUse::kInt4Int6;
  options.first_in_fp32 = seed % 4 == 1;
  options.last_in_fp32 = seed % 4 >= 2;
  return options;
}

Payload PayloadOf(const void* bytes, size_t size) {
  return Payload::CopyOf(absl::MakeConstSpan(static_cast<const std::byte*>(bytes), size));
}

std::vector<int32_t> LabelsOf(const Quantized& made) {
  return RandomLabels(1, 0, made.batch, made.graph.classes());
}

MakeGraphRunnerFn OnBackend(const std::string& name) {
  return [name](const Int8Graph& graph) {
    return inference::GraphRunner::Make(graph, MakeBackend(name, 1).value());
  };
}

absl::StatusOr<std::unique_ptr<InferenceStage>> StageOf(const Quantized& made, int first, int last,
                                                        const std::string& backend,
                                                        BufferPool& pool) {
  auto stage = InferenceStage::Create({made.stages.model, first, last, made.batch},
                                      OnBackend(backend), &pool);
  if (!stage.ok()) return stage.status();
  const absl::Status status = (*stage)->ImportState(Slice(made.stages.state, first, last));
  if (!status.ok()) return status;
  return stage;
}

// By stages that end behind these layers.
StageCompute::Output RunStages(const Quantized& made, const std::vector<int>& ends,
                               const std::string& backend) {
  BufferPool pool;
  const std::vector<int32_t> labels = LabelsOf(made);
  Payload value = PayloadOf(made.samples.data(), made.samples.size() * sizeof(float));
  StageCompute::Output output;
  int first = 0;
  for (const int last : ends) {
    auto stage = StageOf(made, first, last, backend, pool);
    EXPECT_TRUE(stage.ok()) << stage.status();
    if (!stage.ok()) return {};
    const bool is_last = last + 1 == made.stages.model.layer_count();
    const Shape shape = (*stage)->output_shape(made.batch);
    auto result = (*stage)->Evaluate(
        made.batch, std::move(value),
        is_last ? PayloadOf(labels.data(), labels.size() * sizeof(int32_t)) : Payload());
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    output = *std::move(result);
    if (!is_last) {
      // A quarter of FP32, and where its exponent stands.
      EXPECT_EQ(static_cast<int64_t>(output.tensor.size()),
                BoundaryBytes(kInt8InferenceNumbers, shape));
      EXPECT_EQ(TailOf(output.tensor.bytes().data(), DType::kInt8, shape).exponent, 0);
    }
    value = std::move(output.tensor);
    first = last + 1;
  }
  return output;
}

Tally TallyOfWhole(const Quantized& made) {
  const std::vector<float> logits = inference::LogitsOf(*inference::RunnerOn("ref", made.graph),
                                                        made.graph, made.samples, made.batch);
  Tally tally;
  const std::vector<int32_t> labels = LabelsOf(made);
  for (int64_t i = 0; i < made.batch; ++i) {
    tally.Add(absl::MakeConstSpan(logits).subspan(static_cast<size_t>(i * made.graph.classes()),
                                                  static_cast<size_t>(made.graph.classes())),
              labels[static_cast<size_t>(i)]);
  }
  return tally;
}

void ExpectAnyCutGivesTheWhole(const Quantized& made, uint64_t seed) {
  const Tally whole = TallyOfWhole(made);
  const int layers = made.stages.model.layer_count();
  std::vector<std::vector<int>> cuts = {{layers - 1}};
  std::vector<int> all;
  for (int layer = 0; layer < layers; ++layer) all.push_back(layer);
  cuts.push_back(all);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 4; ++i) {
    std::vector<int> ends;
    for (int layer = 0; layer + 1 < layers; ++layer) {
      if (random() % 3 == 0) ends.push_back(layer);
    }
    ends.push_back(layers - 1);
    cuts.push_back(ends);
  }
  for (const std::vector<int>& ends : cuts) {
    for (const char* backend : {"cpu", "ref"}) {
      SCOPED_TRACE(testing::Message() << "stages to " << testing::PrintToString(ends) << " on "
                                      << backend << ", seed " << seed);
      const StageCompute::Output output = RunStages(made, ends, backend);
      EXPECT_EQ(std::memcmp(&output.loss_sum, &whole.loss_sum, sizeof(double)), 0)
          << output.loss_sum << " " << whole.loss_sum;
      EXPECT_EQ(output.correct, whole.correct);
    }
  }
}

TEST(InferenceStages, AnyCutOfRandomModelsGivesTheWhole) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const ModelSpec model = RandomModel(seed);
    const Quantized made = Make(model, seed, OptionsOf(seed), seed % 5 != 0);
    EXPECT_LE(made.stages.model.layer_count(), model.layer_count());
    ExpectAnyCutGivesTheWhole(made, seed);
  }
}

TEST(InferenceStages, AnyCutOfResidualModelsGivesTheWhole) {
  for (const char* name : {"resnet38", "mobilenet_v2"}) {
    Quantized made = Make(MakeModel(name).value(), 7, OptionsOf(name[0] == 'r' ? 2 : 0));
    // Each block is a layer, and none of them is lost.
    EXPECT_EQ(made.stages.model.layer_count(), made.model.layer_count());
    made.batch = 1;
    made.samples.resize(static_cast<size_t>(made.model.input.elements()));
    ExpectAnyCutGivesTheWhole(made, 7);
  }
}

// A ReLU that became part of the convolution before it, a dropout, a flatten of one position.
TEST(InferenceStages, LayersWithoutNodesBelongToTheOneBefore) {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 4;
  conv.kernel = {8, 8};
  const ModelSpec model = ModelOf({1, 8, 8}, 3,
                                  {{conv},
                                   {OpOf(OpKind::kRelu, {0})},
                                   {OpOf(OpKind::kDropout, {0})},
                                   {OpOf(OpKind::kFlatten, {0})},
                                   {LinearOp(5), OpOf(OpKind::kRelu, {1})},
                                   {LinearOp(3)}});
  const Quantized made = Make(model, 3, OptionsOf(0));
  ASSERT_EQ(made.stages.model.layer_count(), 3);
  EXPECT_EQ(made.stages.model.layers[0].name, "l0..l3");
  EXPECT_EQ(made.stages.model.layers[1].name, "l4");
  EXPECT_EQ(CountMacs(made.stages.model).value(), CountMacs(model).value());
  ExpectAnyCutGivesTheWhole(made, 3);
}

// Two values would cross: node 1, which an addition reads again, and node 2.
TEST(InferenceStages, NoCutIsMadeWhereTwoValuesCross) {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 4;
  conv.kernel = {3, 3};
  conv.padding = {1, 1};
  OpSpec last = LinearOp(3, {1});
  const ModelSpec model =
      ModelOf({4, 6, 6}, 3, {{conv}, {conv}, {conv}, {OpOf(OpKind::kFlatten, {0}), last}});
  Quantized made = Make(model, 3, OptionsOf(0));
  ASSERT_EQ(made.stages.model.layer_count(), 4);
  proto::QuantizedGraph graph;
  ASSERT_TRUE(graph.ParseFromString(SerializeGraph(made.graph)));
  // Nodes: samples, three convolutions, flatten, linear. The third one reads the first.
  graph.mutable_nodes(3)->set_inputs(0, 1);
  const auto stages = CutAtLayers(model, graph.SerializeAsString());
  ASSERT_TRUE(stages.ok()) << stages.status();
  ASSERT_EQ(stages->model.layer_count(), 3);
  EXPECT_EQ(stages->model.layers[1].name, "l1..l2");
}

TEST(InferenceStages, NodesOutOfOrderAreRefused) {
  const ModelSpec model = RandomModel(1);
  const Quantized made = Make(model, 1, OptionsOf(0));
  const auto expect = [&](auto change, const char* text) {
    proto::QuantizedGraph graph;
    ASSERT_TRUE(graph.ParseFromString(SerializeGraph(made.graph)));
    change(graph);
    const auto stages = CutAtLayers(model, graph.SerializeAsString());
    ASSERT_FALSE(stages.ok());
    EXPECT_TRUE(absl::IsInvalidArgument(stages.status()));
    EXPECT_THAT(std::string(stages.status().message()), HasSubstr(text));
  };
  expect([](auto& g) { g.mutable_nodes(1)->set_layer(-1); }, "node 1 is of layer -1");
  expect([](auto& g) { g.mutable_nodes(g.nodes_size() - 1)->set_layer(99); }, "is of layer 99");
  expect([](auto& g) { g.mutable_nodes(1)->set_inputs(0, 1); }, "node 1 reads node 1");
  expect([](auto& g) { g.clear_nodes(); }, "no nodes");
  EXPECT_FALSE(CutAtLayers(model, "\xff\xff").ok());
}

TEST(InferenceStages, StatesThatDoNotFitAreRefused) {
  const Quantized made = Make(RandomModel(2), 2, OptionsOf(0));
  const int layers = made.stages.model.layer_count();
  ASSERT_GT(layers, 2);
  BufferPool pool;
  const auto expect = [&](auto change, int first, int last, const char* text) {
    Quantized changed = made;
    change(changed.stages.state);
    const auto stage = StageOf(changed, first, last, "cpu", pool);
    ASSERT_FALSE(stage.ok()) << text;
    EXPECT_TRUE(absl::IsInvalidArgument(stage.status())) << stage.status();
    EXPECT_THAT(std::string(stage.status().message()), HasSubstr(text));
  };
  const auto bytes = [](ModelState& state, int layer) -> std::string& {
    return state.layers[static_cast<size_t>(layer)].tensors[0].bytes;
  };
  expect([](ModelState& s) { s.layers.erase(s.layers.begin() + 1); }, 0, layers - 1, "layers for");
  expect([](ModelState& s) { s.layers[1].tensors[0].name = "w"; }, 0, 1, "layer 1: is no layer");
  expect([&](ModelState& s) { bytes(s, 1) = "x"; }, 0, 1, "layer 1: its graph cannot be parsed");
  expect([&](ModelState& s) { bytes(s, 1).clear(); }, 0, 1, "layer 1");
  // The last layer gives logits, and not to another one.
  expect([&](ModelState& s) { std::swap(bytes(s, 0), bytes(s, layers - 1)); }, 0, 1, "its place");
  expect(
      [&](ModelState& s) {
        proto::QuantizedGraph graph;
        ASSERT_TRUE(graph.ParseFromString(bytes(s, 1)));
        graph.mutable_nodes(0)->set_scale(graph.nodes(0).scale() * 2);
        bytes(s, 1) = graph.SerializeAsString();
      },
      0, 1, "layer 1");
  // Integers of a layer that is as deep, but of another shape.
  const Quantized other = Make(RandomModel(5), 5, OptionsOf(0));
  expect([&](ModelState& s) { s.layers[0] = other.stages.state.layers[0]; }, 0, 0, "");
}

TEST(InferenceStages, WhatNeighboursSendIsChecked) {
  const Quantized made = Make(MakeModel("lenet").value(), 2, OptionsOf(0));
  const int layers = made.stages.model.layer_count();
  BufferPool pool;
  const auto stage = StageOf(made, 1, layers - 1, "cpu", pool);
  ASSERT_TRUE(stage.ok()) << stage.status();
  const auto size =
      static_cast<size_t>(BoundaryBytes(kInt8InferenceNumbers, (*stage)->input_shape(2)));
  const std::vector<int32_t> labels = {0, 1}, wrong = {0, 10};
  const auto evaluate = [&](const std::vector<int8_t>& codes, const std::vector<int32_t>& of) {
    return (*stage)
        ->Evaluate(2, PayloadOf(codes.data(), codes.size()),
                   PayloadOf(of.data(), of.size() * sizeof(int32_t)))
        .status();
  };
  std::vector<int8_t> codes(size, 5);
  EXPECT_TRUE(evaluate(codes, labels).ok());
  EXPECT_THAT(std::string(evaluate(codes, wrong).message()), HasSubstr("label 10 of 10 classes"));
  EXPECT_FALSE(evaluate(codes, {1}).ok());
  codes[3] = -128;
  EXPECT_THAT(std::string(evaluate(codes, labels).message()), HasSubstr("codes from -128"));
  codes.pop_back();
  EXPECT_THAT(std::string(evaluate(codes, labels).message()), HasSubstr("stage input"));
}

TEST(InferenceStages, TrainingIsRefused) {
  const Quantized made = Make(MakeModel("lenet").value(), 2, OptionsOf(0));
  BufferPool pool;
  const auto stage = StageOf(made, 0, 1, "cpu", pool);
  ASSERT_TRUE(stage.ok());
  EXPECT_FALSE((*stage)->Forward({}, {}, {}).ok());
  EXPECT_FALSE((*stage)->InputGradient({}, {}).ok());
  EXPECT_FALSE((*stage)->WeightGradient({}, true).ok());
  EXPECT_FALSE((*stage)->DrawState().ok());
  EXPECT_FALSE((*stage)->ExportState().ok());
}

TEST(Tally, SumsDoNotDependOnTheOrder) {
  const std::vector<float> logits = RandomValues(3, 0, 1000 * 10);
  const std::vector<int32_t> labels = RandomLabels(3, 0, 1000, 10);
  Tally forward, backward;
  for (int64_t i = 0; i < 1000; ++i) {
    for (auto [tally, at] : {std::pair(&forward, i), std::pair(&backward, 999 - i)}) {
      tally->Add(absl::MakeConstSpan(logits).subspan(static_cast<size_t>(at * 10), 10),
                 labels[static_cast<size_t>(at)]);
    }
  }
  EXPECT_EQ(forward.loss_sum, backward.loss_sum);
  EXPECT_EQ(forward.correct, backward.correct);
  EXPECT_GT(forward.correct, 0);
  EXPECT_NEAR(forward.loss_sum / 1000, 2.7, 0.3);
}

// Shares of what a device takes are what plans are made from.
TEST(InferenceProfile, TimesEachLayer) {
  for (const char* backend : {"cpu", "ref"}) {
    const ModelSpec model = MakeModel("lenet").value();
    ProfileOptions options;
    options.samples = 2;
    const auto times = ProfileInference(model, options, OnBackend(backend));
    ASSERT_TRUE(times.ok()) << times.status();
    ASSERT_EQ(static_cast<int>(times->size()), model.layer_count());
    for (const RangeTime& time : *times) EXPECT_GT(time.seconds, 0);
    options.ranges = {{0, 1}, {2, model.layer_count() - 1}};
    const auto parts = ProfileInference(model, options, OnBackend(backend));
    ASSERT_TRUE(parts.ok());
    EXPECT_EQ(parts->size(), 2u);
    options.ranges = {{0, model.layer_count()}};
    EXPECT_FALSE(ProfileInference(model, options, OnBackend(backend)).ok());
  }
}

TEST(InferenceProfile, GraphsForTimingFitEveryModel) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto graph = GraphForTiming(RandomModel(seed));
    EXPECT_TRUE(graph.ok()) << graph.status() << ", seed " << seed;
  }
  EXPECT_TRUE(GraphForTiming(MakeModel("resnet38").value()).ok());
}

}  // namespace
}  // namespace runnel::inference_stage_test
