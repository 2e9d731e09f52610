#include "kernels/models/quantize/quantizer.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/model/initial_state.h"
#include "tests/kernels/inference/golden.h"
#include "tests/kernels/inference/run_graph.h"
#include "tests/kernels/random_model.h"

namespace runnel::inference::quantizer_test {
namespace {

using ::testing::HasSubstr;

// conv 3x3 + batch norm + ReLU, twice, then mean and linear.
ModelSpec SmallModel() {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 16;
  conv.kernel = {3, 3};
  conv.padding = {1, 1};
  const std::vector<OpSpec> layer = {conv, OpOf(OpKind::kBatchNorm, {1}), OpOf(OpKind::kRelu, {2})};
  return ModelOf({3, 8, 8}, 5,
                 {layer, layer, {OpOf(OpKind::kGlobalAvgPool, {0}), LinearOp(5, {1})}});
}

// Its state, with tensors of this name set to a value by channel.
template <typename ValueFn>
void Set(ModelState& state, const char* name, ValueFn value) {
  for (LayerState& layer : state.layers) {
    for (TensorData& tensor : layer.tensors) {
      if (!absl::EndsWith(tensor.name, name)) continue;
      auto* values = reinterpret_cast<float*>(tensor.bytes.data());
      for (int64_t i = 0; i < tensor.shape.elements(); ++i) values[i] = value(i);
    }
  }
}

ModelState StateOf(const ModelSpec& model) {
  ModelState state = InitialState(model, 3).value();
  Set(state, ".scale", [](int64_t i) { return 0.5f + 0.1f * static_cast<float>(i); });
  Set(state, ".shift", [](int64_t i) { return 0.2f - 0.03f * static_cast<float>(i); });
  Set(state, ".running_mean", [](int64_t i) { return 0.1f * static_cast<float>(i % 3); });
  Set(state, ".running_var", [](int64_t i) { return 0.3f + 0.2f * static_cast<float>(i % 4); });
  return state;
}

std::vector<float> Logits(const FoldedGraph& graph, const std::vector<float>& samples,
                          int64_t batch) {
  std::vector<float> logits;
  FoldedExecutor(graph).Run(samples, batch, [&](size_t node, absl::Span<const float> values) {
    if (node + 1 == graph.nodes.size()) logits.assign(values.begin(), values.end());
  });
  return logits;
}

TEST(FoldModel, GivesTheSameFunctionWithFewerNodes) {
  const ModelSpec model = SmallModel();
  const ModelState state = StateOf(model);
  const FoldedGraph folded = FoldModel(model, state, true).value();
  const FoldedGraph whole = FoldModel(model, state, false).value();
  EXPECT_EQ(folded.nodes.size(), 5u);  // samples, two convolutions, mean, linear
  EXPECT_EQ(whole.nodes.size(), 7u);
  const std::vector<float> samples = RandomValues(1, 0, 4 * 3 * 8 * 8);
  const std::vector<float> a = Logits(folded, samples, 4), b = Logits(whole, samples, 4);
  ASSERT_EQ(a.size(), 20u);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
}

TEST(FoldModel, DoesNotFoldWhatOthersReadToo) {
  OpSpec conv = OpOf(OpKind::kConv, {0});
  conv.out_channels = 3;
  const ModelSpec model = ModelOf(
      {3, 4, 4}, 2,
      {{conv, OpOf(OpKind::kBatchNorm, {1}), OpOf(OpKind::kAdd, {1, 2}), OpOf(OpKind::kRelu, {3})},
       {OpOf(OpKind::kGlobalAvgPool, {0}), LinearOp(2, {1})}});
  const FoldedGraph graph = FoldModel(model, StateOf(model), true).value();
  ASSERT_EQ(graph.nodes.size(), 6u);  // samples, convolution, norm, sum, mean, linear
  EXPECT_EQ(graph.nodes[2].shape.groups, 3);
  EXPECT_EQ(graph.nodes[3].clamp, Clamp::kRelu);
}

absl::StatusOr<Int8Graph> Quantized(const FoldedGraph& graph, const std::vector<float>& samples,
                                    const QuantizeOptions& options) {
  Quantizer quantizer(graph, options);
  const int64_t batch = static_cast<int64_t>(samples.size()) / graph.nodes[0].outputs();
  for (int pass = 0; pass < quantizer.passes(); ++pass) quantizer.Observe(pass, samples, batch);
  return quantizer.Finish();
}

// Signal to noise in dB of INT8 logits.
double LogitSnr(const FoldedGraph& graph, const Int8Graph& int8, const std::vector<float>& samples,
                int64_t batch) {
  const std::vector<float> real = Logits(graph, samples, batch);
  const std::vector<float> got = LogitsOf(*RunnerOn("cpu", int8), int8, samples, batch);
  double signal = 0, noise = 0;
  for (size_t i = 0; i < real.size(); ++i) {
    signal += std::pow(real[i], 2);
    noise += std::pow(real[i] - got[i], 2);
  }
  return 10 * std::log10(signal / noise);
}

TEST(Quantizer, EveryMethodComesNearFp32) {
  const ModelSpec model = SmallModel();
  const std::vector<float> samples = RandomValues(2, 0, 16 * 3 * 8 * 8);
  for (bool fold : {true, false}) {
    const FoldedGraph graph = FoldModel(model, StateOf(model), fold).value();
    for (Scheme scheme : {Scheme::kSymmetric, Scheme::kAsymmetric}) {
      for (Granularity granularity : {Granularity::kLayer, Granularity::kChannel}) {
        for (const char* rule : {"absmax", "kl", "percentile:99.99"}) {
          const QuantizeOptions options{ParseCalibration(rule).value(), scheme, granularity};
          const Int8Graph int8 = Quantized(graph, samples, options).value();
          EXPECT_GT(LogitSnr(graph, int8, samples, 16), 22)
              << rule << static_cast<int>(scheme) << static_cast<int>(granularity) << fold;
        }
      }
    }
    QuantizeOptions winograd;
    winograd.winograd = WinogradUse::kInt4Int6;
    const Int8Graph int8 = Quantized(graph, samples, winograd).value();
    const double snr = LogitSnr(graph, int8, samples, 16);
    EXPECT_GT(snr, 10);
    EXPECT_LT(snr, 30);  // it has fewer bits
  }
}

// The batch norm of a dead channel leaves weights of zero and a bias that must not be lost.
TEST(Quantizer, AChannelWithoutWeightsKeepsItsBias) {
  const ModelSpec model = SmallModel();
  ModelState state = StateOf(model);
  Set(state, ".scale", [](int64_t i) { return i % 2 == 0 ? 0.0f : 1.0f; });
  Set(state, ".shift", [](int64_t i) { return 0.7f + 0.01f * static_cast<float>(i); });
  const FoldedGraph graph = FoldModel(model, state, true).value();
  const std::vector<float> samples = RandomValues(3, 0, 4 * 3 * 8 * 8);
  const Int8Graph int8 = Quantized(graph, samples, {ParseCalibration("absmax").value()}).value();
  EXPECT_GT(LogitSnr(graph, int8, samples, 4), 25);
}

TEST(Quantizer, SaysWhichOperatorGivesNonsense) {
  const ModelSpec model = SmallModel();
  const FoldedGraph graph = FoldModel(model, StateOf(model), true).value();
  std::vector<float> samples = RandomValues(3, 0, 3 * 8 * 8);
  samples[5] = std::numeric_limits<float>::infinity();
  const absl::Status status =
      Quantized(graph, samples, {ParseCalibration("absmax").value()}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("not finite"));
}

TEST(Quantizer, OptionsAreReadByName) {
  EXPECT_EQ(ParseScheme("asymmetric").value(), Scheme::kAsymmetric);
  EXPECT_EQ(ParseGranularity("layer").value(), Granularity::kLayer);
  EXPECT_EQ(ParseWinograd("int4_int6").value(), WinogradUse::kInt4Int6);
  EXPECT_THAT(ParseScheme("odd").status().message(), HasSubstr("symmetric, asymmetric"));
  EXPECT_THAT(ParseGranularity("row").status().message(), HasSubstr("layer, channel"));
  EXPECT_THAT(ParseWinograd("on").status().message(), HasSubstr("off, int4_int6"));
  EXPECT_FALSE(
      CheckOptions({{}, Scheme::kAsymmetric, Granularity::kChannel, WinogradUse::kInt4Int6}).ok());
}

// Each change of a valid graph is refused with the node's number.
TEST(Int8Graph, OneFromOutsideIsChecked) {
  const ModelSpec model = SmallModel();
  const FoldedGraph folded = FoldModel(model, StateOf(model), true).value();
  QuantizeOptions options;
  options.winograd = WinogradUse::kInt4Int6;
  const Int8Graph valid = Quantized(folded, RandomValues(3, 0, 3 * 8 * 8), options).value();
  ASSERT_TRUE(valid.nodes[2].winograd);
  const auto refused = [&](size_t node, auto change) {
    Int8Graph graph = valid;
    change(graph.nodes[node]);
    const absl::Status status = CheckAndInfer(graph);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("node ", node, ": ")));
  };
  refused(1, [](Int8Node& n) { n.weights.pop_back(); });
  refused(1, [](Int8Node& n) { n.weights[0] = -128; });
  refused(1, [](Int8Node& n) { n.bias.push_back(0); });
  refused(1, [](Int8Node& n) { n.factors.pop_back(); });
  refused(1, [](Int8Node& n) { n.factors[3].shift = 63; });
  refused(1, [](Int8Node& n) { n.factors[3].multiplier = -1; });
  refused(1, [](Int8Node& n) { n.weight_zeros = {1, 2}; });
  refused(1, [](Int8Node& n) { n.node.inputs[0] = 1; });
  refused(1, [](Int8Node& n) { n.node.shape.kernel_h = 99; });
  refused(1, [](Int8Node& n) { n.node.shape.groups = 2; });
  refused(1, [](Int8Node& n) { n.node.shape.out_c = int64_t{1} << 60; });
  refused(1, [](Int8Node& n) { n.node.shape.pad_h = int64_t{1} << 40; });
  refused(1, [](Int8Node& n) { n.winograd = true; });  // reads 8 bits
  refused(1, [](Int8Node& n) { n.coding.scale = 0; });
  refused(1, [](Int8Node& n) { n.coding.max_code = 128; });
  refused(2, [](Int8Node& n) { n.weights[0] = 8; });
  refused(3, [](Int8Node& n) { n.bias.push_back(0); });
  refused(3, [](Int8Node& n) { n.coding.scale = NAN; });
  refused(4, [](Int8Node& n) { n.logit_scales.clear(); });
  refused(0, [](Int8Node& n) { n.node.kind = NodeKind::kClamp; });
  refused(2, [](Int8Node& n) { n.node.kind = static_cast<NodeKind>(99); });
}

}  // namespace
}  // namespace runnel::inference::quantizer_test
