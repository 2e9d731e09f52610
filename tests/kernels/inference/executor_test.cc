// Quantised models as programs on backend cpu equal those on ref, bit for bit.

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/models/graph_program.h"
#include "kernels/models/quantize/quantizer.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/random.h"
#include "tests/kernels/inference/golden.h"
#include "tests/kernels/inference/run_graph.h"
#include "tests/kernels/random_model.h"

namespace runnel::inference::executor_test {
namespace {

// The first state with batch norms that have seen something.
ModelState LivedState(const ModelSpec& model, uint64_t seed) {
  ModelState state = InitialState(model, seed).value();
  uint64_t stream = 0;
  for (LayerState& layer : state.layers) {
    for (TensorData& tensor : layer.tensors) {
      const CounterRandom random(seed, RandomPurpose::kTest, 3, stream++);
      auto* values = reinterpret_cast<float*>(tensor.bytes.data());
      for (int64_t i = 0; i < tensor.shape.elements(); ++i) {
        const auto draw = static_cast<float>(random.Uniform(i));
        if (absl::StrContains(tensor.name, "running_var")) values[i] = 0.25f + draw;
        if (absl::StrContains(tensor.name, "running_mean")) values[i] = draw - 0.5f;
        if (absl::StrContains(tensor.name, "scale")) values[i] = draw < 0.1f ? -draw : 0.5f + draw;
        if (absl::StrContains(tensor.name, "shift")) values[i] = draw - 0.25f;
      }
    }
  }
  return state;
}

struct Case {
  Int8Graph graph;
  std::vector<float> samples;
  int64_t batch = 3;
};

Case Make(const ModelSpec& model, uint64_t seed, bool fold, const QuantizeOptions& options) {
  Case made;
  const FoldedGraph folded = FoldModel(model, LivedState(model, seed), fold).value();
  made.samples = RandomValues(seed, 0, made.batch * model.input.elements());
  Quantizer quantizer(folded, options);
  for (int pass = 0; pass < quantizer.passes(); ++pass) {
    quantizer.Observe(pass, made.samples, made.batch);
  }
  absl::StatusOr<Int8Graph> graph = quantizer.Finish();
  EXPECT_TRUE(graph.ok()) << graph.status();
  made.graph = *std::move(graph);
  return made;
}

// Instructions of a program of the graph that add a value to a product's codes.
int FusedAdditions(const Int8Graph& graph) {
  const GraphProgram made =
      CompileGraph(graph, 1, std::vector<size_t>{0}, graph.nodes.size() - 1, {true}).value();
  int fused = 0;
  for (const Instruction& one : made.program.part(Part::kForwardEval)) {
    fused += one.code == OpCode::kInt8ProductToCodes && one.inputs.size() > kAddedOperand ? 1 : 0;
  }
  return fused;
}

void ExpectEqualOnAllKernels(const Case& made) {
  const std::vector<float> expected =
      LogitsOf(*RunnerOn("ref", made.graph), made.graph, made.samples, made.batch);
  for (const std::string& set : CpuInstructionSets()) {
    for (int threads : {1, 3}) {
      SCOPED_TRACE(testing::Message() << set << ", " << threads << " threads");
      const auto runner = RunnerOf(made.graph, MakeCappedCpuBackend(set, threads).value());
      // Twice: nothing of the first run is left in the second.
      for (int run = 0; run < 2; ++run) {
        EXPECT_EQ(LogitsOf(*runner, made.graph, made.samples, made.batch), expected);
      }
    }
  }
}

constexpr Scheme kSchemes[] = {Scheme::kSymmetric, Scheme::kAsymmetric};
constexpr Granularity kGranularities[] = {Granularity::kLayer, Granularity::kChannel};

TEST(Int8Models, EqualsRefOnRandomModels) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const ModelSpec model = RandomModel(seed);
    for (Scheme scheme : kSchemes) {
      for (Granularity granularity : kGranularities) {
        SCOPED_TRACE(testing::Message() << "model " << seed << ", " << static_cast<int>(scheme)
                                        << static_cast<int>(granularity));
        QuantizeOptions options{{}, scheme, granularity};
        if (seed % 3 != 0) options.calibration = ParseCalibration("absmax").value();
        ExpectEqualOnAllKernels(Make(model, seed, seed % 2 == 0, options));
      }
    }
  }
}

// Depthwise and residual blocks, ReLU6; 3x3 convolutions with odd sizes and few channels.
TEST(Int8Models, EqualsRefOnResidualBlocks) {
  const auto conv = [](int64_t channels, int64_t kernel, int64_t groups, int32_t from) {
    OpSpec op = OpOf(OpKind::kConv, {from});
    op.out_channels = channels;
    op.kernel = {kernel, kernel};
    op.padding = {kernel / 2, kernel / 2};
    op.groups = groups;
    return op;
  };
  OpSpec pool = OpOf(OpKind::kMaxPool, {0});
  pool.kernel = {3, 3};
  pool.stride = {2, 2};
  pool.padding = {1, 1};
  const ModelSpec model =
      ModelOf({3, 13, 11}, 7,
              {{conv(18, 3, 1, 0), OpOf(OpKind::kBatchNorm, {1}), OpOf(OpKind::kRelu6, {2})},
               {conv(36, 1, 1, 0), OpOf(OpKind::kBatchNorm, {1}), OpOf(OpKind::kRelu6, {2}),
                conv(36, 3, 36, 3), OpOf(OpKind::kBatchNorm, {4}), OpOf(OpKind::kRelu6, {5}),
                conv(18, 1, 1, 6), OpOf(OpKind::kBatchNorm, {7}), OpOf(OpKind::kAdd, {8, 0})},
               {conv(20, 3, 1, 0), OpOf(OpKind::kBatchNorm, {1}), OpOf(OpKind::kRelu, {2}),
                conv(18, 3, 1, 3), OpOf(OpKind::kAdd, {4, 0}), OpOf(OpKind::kRelu, {5})},
               {pool, conv(24, 3, 2, 1)},
               {OpOf(OpKind::kGlobalAvgPool, {0}), LinearOp(7, {1})}});
  for (bool fold : {true, false}) {
    for (Scheme scheme : kSchemes) {
      for (Granularity granularity : kGranularities) {
        const Case made = Make(model, 5, fold, {{}, scheme, granularity});
        EXPECT_EQ(FusedAdditions(made.graph), 2);
        ExpectEqualOnAllKernels(made);
      }
    }
    QuantizeOptions winograd;
    winograd.winograd = WinogradUse::kInt4Int6;
    const Case made = Make(model, 6, fold, winograd);
    int used = 0;
    for (const Int8Node& n : made.graph.nodes) used += n.winograd ? 1 : 0;
    EXPECT_EQ(used, 2);  // not the first, not the grouped one
    ExpectEqualOnAllKernels(made);
  }
}

TEST(Int8Models, EqualsRefOnModelsOfTheZoo) {
  for (const char* name : {"lenet", "har_cnn", "mobilenet_v2"}) {
    SCOPED_TRACE(name);
    Case made = Make(MakeModel(name).value(), 9, true, {});
    made.batch = 1;
    made.samples.resize(made.graph.nodes[0].node.outputs());
    ExpectEqualOnAllKernels(made);
  }
}

TEST(Int8Models, PackedWeightsCountAsMemoryOnce) {
  const Case made = Make(MakeModel("lenet").value(), 9, true, {});
  constexpr int64_t kWeights = 60'000;  // its products have a few more
  for (const std::string& set : CpuInstructionSets()) {
    SCOPED_TRACE(set);
    const auto runner = RunnerOf(made.graph, MakeCappedCpuBackend(set, 1).value());
    LogitsOf(*runner, made.graph, made.samples, made.batch);
    const int64_t bytes = runner->memory_bytes();
    EXPECT_GE(bytes, kWeights);
    LogitsOf(*runner, made.graph, {made.samples.data(), made.samples.size() / made.batch}, 1);
    EXPECT_EQ(runner->memory_bytes(), bytes) << "another batch has the same weights";
  }
}

TEST(Int8Models, LayersInFp32AreRefs) {
  int real = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    QuantizeOptions options{ParseCalibration("absmax").value(),
                            seed % 2 == 0 ? Scheme::kSymmetric : Scheme::kAsymmetric};
    options.first_in_fp32 = seed % 3 != 1;
    options.last_in_fp32 = seed % 3 != 0;
    const Case made = Make(RandomModel(seed), seed, true, options);
    for (const Int8Node& n : made.graph.nodes) real += n.is_real() ? 1 : 0;
    ExpectEqualOnAllKernels(made);
  }
  EXPECT_GT(real, 4);
}

// Two convolutions whose sums are all integers of a range, and their addition: each code of tiles
// that make codes, halves of the shift among them.
struct SumsCase {
  bool float_factors = true;  // else some sums lie halfway between two codes
  Clamp clamp = Clamp::kNone;
  int32_t zero = 0;
};
Int8Graph AllSums(const SumsCase& wanted, uint64_t seed) {
  constexpr int64_t kOuts = 70;
  const CounterRandom random(seed, RandomPurpose::kTest, 5, 0);
  Int8Graph graph;
  graph.nodes.resize(4);
  graph.nodes[0].node.shape.out_c = 2;
  for (int k : {1, 2}) {
    Int8Node& conv = graph.nodes[k];
    conv.node.kind = NodeKind::kConv;
    conv.node.inputs[0] = 0;
    conv.node.shape.out_c = kOuts;
    conv.coding.zero = wanted.zero;
    for (int64_t o = 0; o < kOuts; ++o) {
      const uint64_t draw = static_cast<uint64_t>(k * kOuts + o);
      conv.weights.push_back(static_cast<int8_t>(o % 2 == 0 ? 127 : -127));
      conv.weights.push_back(1);
      conv.bias.push_back(static_cast<int32_t>(random.Below(draw, 2001)) - 1000);
      const double real = 0.004 + 0.03 * random.Uniform(1000 + draw);
      conv.factors.push_back(wanted.float_factors ? FloatFactorOf(real)
                                                  : Factor{1 << 30, 36 + static_cast<int>(o % 3)});
    }
  }
  Int8Node& sum = graph.nodes[3];
  sum.node.kind = NodeKind::kAdd;
  sum.node.inputs = {1, 2};
  sum.node.clamp = wanted.clamp;
  sum.coding.zero = wanted.zero;
  const int32_t shift = 1 + static_cast<int32_t>(random.Below(3000, 14));
  for (uint64_t k : {0, 1}) {
    sum.factors.push_back({static_cast<int32_t>(random.Below(3001 + k, 2 << shift)), shift});
  }
  EXPECT_TRUE(CheckAndInfer(graph).ok()) << CheckAndInfer(graph);
  return graph;
}

TEST(Int8Models, CodesOfAllSumsAreRefs) {
  std::vector<float> samples;
  for (int x = -127; x <= 127; ++x) {
    for (int y = -63; y <= 63; ++y) samples.insert(samples.end(), {float(x), float(y)});
  }
  const auto batch = static_cast<int64_t>(samples.size() / 2);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    SumsCase wanted;
    wanted.float_factors = seed % 4 != 3;
    if (seed % 3 == 0) wanted.clamp = Clamp::kRelu;
    if (seed % 2 == 1) wanted.zero = static_cast<int32_t>(seed) - 9;
    const Int8Graph graph = AllSums(wanted, seed);
    EXPECT_EQ(FusedAdditions(graph), 1);
    const std::vector<float> expected = LogitsOf(*RunnerOn("ref", graph), graph, samples, batch);
    for (const std::string& set : CpuInstructionSets()) {
      SCOPED_TRACE(set);
      const auto runner = RunnerOf(graph, MakeCappedCpuBackend(set, 1).value());
      ASSERT_TRUE(LogitsOf(*runner, graph, samples, batch) == expected);
    }
  }
}

// Sums beyond int32 saturate before they are rounded: no row may let them wrap.
TEST(Int8Models, SaturatesAsRef) {
  QuantizeOptions options;
  options.winograd = WinogradUse::kInt4Int6;
  Case made = Make(MakeModel("vgg11").value(), 4, true, options);
  made.batch = 1;
  made.samples.resize(made.graph.nodes[0].node.outputs());
  int changed = 0;
  for (Int8Node& n : made.graph.nodes) {
    for (size_t o = 0; o < n.bias.size(); o += 3) n.bias[o] = o % 2 == 0 ? INT32_MAX : -INT32_MAX;
    changed += n.bias.empty() ? 0 : 1;
  }
  EXPECT_GT(changed, 3);
  ASSERT_TRUE(CheckAndInfer(made.graph).ok());
  ExpectEqualOnAllKernels(made);
}

// q_x and q_w with both zeros, as unsigned codes there: shifted by 128 here.
TEST(Int8Models, ProductsWithZerosAreTheGoldenOnes) {
  const nlohmann::json golden = Golden("int8_winograd.json")["zero_point_gemm"];
  const auto x = golden["qx"].get<std::vector<std::vector<int>>>();
  const auto w = golden["qw"].get<std::vector<std::vector<int>>>();
  const auto y = golden["result"].get<std::vector<std::vector<int>>>();
  const auto code = [](int unsigned_code) { return unsigned_code - 128; };
  Int8Graph graph;
  graph.nodes.resize(2);
  graph.nodes[0].node.shape.out_c = static_cast<int64_t>(w.size());
  graph.nodes[0].coding = {1, code(golden["zx"]), 127};
  Int8Node& product = graph.nodes[1];
  product.node.kind = NodeKind::kConv;
  product.node.inputs[0] = 0;
  product.node.shape.out_c = static_cast<int64_t>(w[0].size());
  for (size_t o = 0; o < w[0].size(); ++o) {
    for (const std::vector<int>& row : w) product.weights.push_back(code(row[o]));
    product.weight_zeros.push_back(code(golden["zw"]));
    product.bias.push_back(0);
    product.logit_scales.push_back(1);
  }
  ASSERT_TRUE(CheckAndInfer(graph).ok()) << CheckAndInfer(graph);
  std::vector<float> samples, expected;
  for (size_t n = 0; n < x.size(); ++n) {
    for (int q : x[n]) samples.push_back(static_cast<float>(q - golden["zx"].get<int>()));
    for (int sum : y[n]) expected.push_back(static_cast<float>(sum));
  }
  for (const char* backend : {"ref", "cpu"}) {
    SCOPED_TRACE(backend);
    const auto batch = static_cast<int64_t>(x.size());
    EXPECT_EQ(LogitsOf(*RunnerOn(backend, graph), graph, samples, batch), expected);
  }
}

}  // namespace
}  // namespace runnel::inference::executor_test
