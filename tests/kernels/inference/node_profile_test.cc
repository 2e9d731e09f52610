#include "kernels/models/node_profile.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/backends/cpu/lone_kernels.h"
#include "kernels/models/quantize/quantizer.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/kernels/inference/run_graph.h"
#include "tests/kernels/random_model.h"

namespace runnel::inference::node_profile_test {
namespace {

struct Made {
  FoldedGraph real;
  Int8Graph graph;
  std::vector<float> samples;
};

void ToChannelsFirst(const float* nhwc, int64_t positions, int64_t channels, float* nchw) {
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t c = 0; c < channels; ++c) nchw[c * positions + p] = nhwc[p * channels + c];
}

Made Make(WinogradUse winograd) {
  const ModelSpec model = MakeModel("vgg11").value();
  Made made;
  made.real = FoldModel(model, InitialState(model, 1).value(), true).value();
  made.samples = RandomValues(1, 0, 2 * model.input.elements());
  QuantizeOptions options;
  options.calibration = ParseCalibration("absmax").value();
  options.winograd = winograd;
  Quantizer quantizer(made.real, options);
  quantizer.Observe(0, made.samples, 2);
  made.graph = quantizer.Finish().value();
  return made;
}

TEST(NodeProfile, FewerBitsAreFurtherFromFp32) {
  const Made fine = Make(WinogradUse::kOff), coarse = Make(WinogradUse::kInt4Int6);
  const auto errors = [](const Made& made) {
    return CompareNodes(made.real, made.graph, *RunnerOn("cpu", made.graph), made.samples, 2)
        .value();
  };
  const std::vector<NodeError> eight = errors(fine), four = errors(coarse);
  ASSERT_EQ(eight.size(), fine.graph.nodes.size());
  // 127 codes for a range that is uniform or narrower.
  EXPECT_GT(eight[0].snr_db, 30);
  EXPECT_LT(eight[0].snr_db, 60);
  for (size_t i = 3; i < eight.size(); ++i) {
    EXPECT_LT(four[i].snr_db, eight[i].snr_db - 6) << i;
    EXPECT_LT(four[i].cosine, eight[i].cosine) << i;
  }
  EXPECT_GT(eight.back().cosine, 0.99);
}

TEST(NodeProfile, FactsAreTheGraphs) {
  const Made made = Make(WinogradUse::kInt4Int6);
  const auto runner = RunnerOn("cpu", made.graph);
  const std::vector<NodeFacts> facts =
      DescribeNodes(made.graph, [&runner](size_t node) { return runner->kernel(node); });
  EXPECT_EQ(facts[0].name, "input");
  EXPECT_EQ(facts[1].name, "conv 3x3");
  EXPECT_EQ(facts[1].shape, "3-32-64");
  EXPECT_EQ(facts[1].macs, 32 * 32 * 64 * 27);
  EXPECT_EQ(facts[1].kernel.substr(0, 7), "direct ");
  EXPECT_EQ(facts[3].kernel.substr(0, 9), "winograd ");
  EXPECT_EQ(facts.back().name, "linear");
  // Codes in and out, a byte a weight, 4 a bias, 8 a factor.
  EXPECT_EQ(facts[1].bytes, 3 * 1024 + 64 * 1024 + 27 * 64 + 64 * 12);
  const std::vector<double> seconds = runner->TimeNodes(1, 3).value();
  ASSERT_EQ(seconds.size(), facts.size());
  for (double s : seconds) EXPECT_GE(s, 0);
  EXPECT_GT(cpu::LoneKernelTimer(1).MeasureInt8Peak(), 0);
}

// By node, of random samples.
std::vector<std::vector<float>> ValuesOf(const FoldedGraph& graph, int64_t batch) {
  std::vector<std::vector<float>> values;
  const std::vector<float> samples = RandomValues(3, 0, batch * graph.nodes[0].outputs());
  FoldedExecutor(graph).Run(samples, batch, [&](size_t, absl::Span<const float> value) {
    values.emplace_back(value.begin(), value.end());
  });
  return values;
}

// What is timed is the layer: given its weights and input, it has the graph's values.
TEST(LoneConv, ComputesWhatTheGraphDoes) {
  const ModelSpec model = MakeModel("mobilenet_v2").value();
  const FoldedGraph graph = FoldModel(model, InitialState(model, 1).value(), true).value();
  cpu::ThreadPool pool(2);
  const int64_t batch = 2;
  const std::vector<std::vector<float>> values = ValuesOf(graph, batch);
  int checked = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.kind != NodeKind::kConv) continue;
    cpu::LoneConv peer(node.shape, batch, &pool);
    const std::vector<float>& x = values[static_cast<size_t>(node.inputs[0])];
    ASSERT_EQ(peer.x().size(), x.size());
    std::copy(x.begin(), x.end(), peer.x().begin());
    const ConvWeights& from = graph.weights[i];
    std::copy(from.bias.begin(), from.bias.end(), peer.bias().begin());
    const int64_t channels = node.shape.in_c / node.shape.groups, taps = node.shape.taps();
    for (int64_t o = 0; o < node.shape.out_c; ++o) {
      ToChannelsFirst(&from.weights[static_cast<size_t>(o * taps * channels)], taps, channels,
                      &peer.weights()[static_cast<size_t>(o * taps * channels)]);
    }
    peer.Run();
    const float limit = node.clamp == Clamp::kRelu6 ? 6 : INFINITY;
    for (size_t k = 0; k < values[i].size(); ++k) {
      float y = peer.y()[k];
      if (node.clamp != Clamp::kNone) y = std::clamp(y, 0.0f, limit);
      ASSERT_NEAR(y, values[i][k], 1e-4 * (1 + std::fabs(values[i][k]))) << i << " at " << k;
    }
    ++checked;
  }
  EXPECT_GT(checked, 50);
}

TEST(LoneConv, TimesAreThoseOfTheShapes) {
  const std::vector<ConvShape> shapes = {Make(WinogradUse::kOff).graph.nodes[1].node.shape};
  const std::vector<double> seconds = cpu::LoneKernelTimer(1).ConvSeconds(shapes, 1, 3);
  ASSERT_EQ(seconds.size(), 1u);
  EXPECT_GT(seconds[0], 0);
}

// A first layer in FP32 has the error of its codes alone.
TEST(NodeProfile, AFirstLayerInFp32IsCloser) {
  const ModelSpec model = MakeModel("vgg11").value();
  const FoldedGraph real = FoldModel(model, InitialState(model, 1).value(), true).value();
  const std::vector<float> samples = RandomValues(1, 0, model.input.elements());
  double snr[2];
  for (bool in_fp32 : {false, true}) {
    QuantizeOptions options;
    options.calibration = ParseCalibration("absmax").value();
    options.first_in_fp32 = options.last_in_fp32 = in_fp32;
    Quantizer quantizer(real, options);
    quantizer.Observe(0, samples, 1);
    const Int8Graph graph = quantizer.Finish().value();
    snr[in_fp32] = CompareNodes(real, graph, *RunnerOn("cpu", graph), samples, 1).value()[1].snr_db;
    EXPECT_EQ(graph.nodes.back().is_real(), in_fp32);
  }
  EXPECT_GT(snr[1], snr[0] + 1);
}

// By given times: those that are faster, and none where none is.
TEST(WinogradChoice, TakesWhatIsFaster) {
  const ModelSpec model = MakeModel("vgg11").value();
  const FoldedGraph real = FoldModel(model, InitialState(model, 1).value(), true).value();
  const std::vector<float> samples = RandomValues(1, 0, 2 * model.input.elements());
  QuantizeOptions options;
  options.calibration = ParseCalibration("absmax").value();
  options.winograd = WinogradUse::kAuto;
  Quantizer quantizer(real, options);
  quantizer.Observe(0, samples, 2);
  const std::vector<size_t> candidates = quantizer.WinogradCandidates();
  ASSERT_GT(candidates.size(), 4u);
  const std::unique_ptr<Backend> backend = MakeBackend("cpu", 1).value();
  const auto taken = [&](double gain_of_first_two) {
    const Int8Graph graph =
        QuantizeWithChosenWinograd(quantizer, real, samples, 2, *backend,
                                   [&](const Int8Graph& timed) {
                                     std::vector<double> seconds(timed.nodes.size(), 1.0);
                                     for (size_t i = 0; i < 2; ++i) {
                                       if (timed.nodes[candidates[i]].winograd)
                                         seconds[candidates[i]] /= gain_of_first_two;
                                     }
                                     return seconds;
                                   })
            .value();
    std::vector<size_t> nodes;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (graph.nodes[i].winograd) nodes.push_back(i);
    }
    return nodes;
  };
  EXPECT_TRUE(taken(1.01).empty());
  const std::vector<size_t> two = taken(2);
  EXPECT_LE(two.size(), 2u);
  for (size_t node : two) EXPECT_LE(node, candidates[1]);
}

}  // namespace
}  // namespace runnel::inference::node_profile_test
