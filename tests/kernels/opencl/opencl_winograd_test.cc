// Winograd's convolutions of the OpenCL backend, bit for bit as ref's direct ones; which convolutions are computed so.
// Skipped where there is no device, as far as one is needed.

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/opencl/device/device.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "kernels/backends/opencl/product/product_plan.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/backends/tells_ways.h"
#include "kernels/ir/arithmetic/code_rule.h"
#include "kernels/ir/arithmetic/winograd.h"
#include "kernels/models/graph_runner.h"
#include "proto/base/random.h"
#include "tests/conformance/random_graph.h"
#include "tests/kernels/opencl/opencl_faults.h"
#include "tests/kernels/program_bench.h"

namespace runnel::opencl::opencl_winograd_test {
namespace {

struct Conv {
  Shape x;
  int64_t out = 1;
  std::array<int64_t, 2> front = {1, 1}, behind = {1, 1};  // padding of rows, of columns
  bool is_extreme = false;  // values at the ends of their range alone
};

// Sizes of ncnn's and the Arm Compute Library's tests, with its paddings that differ by side.
std::vector<Conv> NamedOnes() {
  std::vector<Conv> all = {{{1, 1, 9, 7}, 1},   {{1, 4, 9, 7}, 13},    {{1, 13, 9, 7}, 4},
                           {{1, 12, 9, 7}, 12}, {{1, 8, 19, 17}, 7},   {{1, 16, 19, 17}, 16},
                           {{2, 2, 8, 8}, 1},   {{1, 20, 14, 14}, 24}, {{1, 24, 12, 27}, 32},
                           {{5, 16, 3, 3}, 10}, {{4, 33, 27, 7}, 16},  {{1, 4, 1, 1}, 3},
                           {{3, 7, 2, 5}, 9}};
  for (const bool is_extreme : {false, true}) {
    all.push_back({{2, 3, 33, 27}, 4, {2, 1}, {0, 1}, is_extreme});
    all.push_back({{2, 3, 33, 27}, 4, {0, 1}, {2, 1}, is_extreme});
    all.push_back({{2, 3, 33, 27}, 4, {2, 2}, {0, 1}, is_extreme});
    all.push_back({{2, 3, 33, 27}, 4, {0, 1}, {2, 3}, is_extreme});
    all.push_back({{1, 5, 27, 33}, 17, {1, 1}, {0, 0}, is_extreme});
    all.push_back({{1, 5, 27, 33}, 17, {0, 0}, {1, 1}, is_extreme});
    all.push_back({{2, 64, 6, 6}, 18, {0, 0}, {0, 0}, is_extreme});
  }
  return all;
}

// With the sums as the output, or codes of them.
ProgramBench Make(const Conv& conv, bool gives_codes) {
  const CounterRandom random(static_cast<uint64_t>(conv.x.elements() + conv.out),
                             RandomPurpose::kTest, 3, 0);
  uint64_t next = 0;
  const auto add = [&](ProgramBench& bench, Storage storage, const Shape& shape, int most) {
    std::vector<std::byte> bytes(static_cast<size_t>(shape.elements()));
    for (std::byte& byte : bytes) {
      const uint32_t draw = random.Below(next++, static_cast<uint32_t>(2 * most + 1));
      const int value = static_cast<int>(draw) - most;
      byte = static_cast<std::byte>(conv.is_extreme ? (value < 0 ? -most : most) : value);
    }
    return bench.AddGiven({storage, DType::kInt8, shape, 0, true}, std::move(bytes));
  };
  ProgramBench bench;
  const BufferIndex x = add(bench, Storage::kInput, conv.x, kWinogradInputMax);
  const BufferIndex weight =
      add(bench, Storage::kParameters, {conv.out, conv.x[1], 3, 3}, kWinogradWeightMax);
  const auto side = [&](int axis) {
    const auto a = static_cast<size_t>(axis);
    return conv.x[axis + 2] + conv.front[a] + conv.behind[a] - 2;
  };
  const Shape shape = {conv.x[0], conv.out, side(0), side(1)};
  const BufferIndex sums = bench.Add(
      {gives_codes ? Storage::kScratch : Storage::kOutput, DType::kInt32, shape, 0, true});
  Instruction& product = bench.Emit(OpCode::kInt8ConvForward, {x, weight}, sums);
  product.attributes = {.kind = OpKind::kConv, .out_channels = conv.out, .kernel = {3, 3}};
  product.attributes.padding = conv.front;
  product.attributes.padding_end = conv.behind;
  product.winograd = true;
  bench.program.batch = conv.x[0];
  if (!gives_codes) return bench;
  const CodeRule rule = {.zero = 3, .lowest = -31, .highest = 30};
  const CodeChannel channel = {.offset = 77, .multiplier = 3 << 19, .shift = 29};
  std::vector<std::byte> words(sizeof rule + sizeof channel);
  std::memcpy(words.data(), &rule, sizeof rule);
  std::memcpy(words.data() + sizeof rule, &channel, sizeof channel);
  const Shape of_words = {static_cast<int64_t>(words.size() / sizeof(int64_t))};
  const BufferIndex at =
      bench.AddGiven({Storage::kParameters, DType::kInt64, of_words}, std::move(words));
  bench.Emit(OpCode::kRequantizeCodes, {sums, at},
             bench.Add({Storage::kOutput, DType::kInt8, shape, 0, true}));
  return bench;
}

// The first drawn one that has some and no node in FP32.
std::optional<inference::Int8Graph> GraphWithWinograd() {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    inference::Int8Graph graph = inference::RandomGraph(seed);
    int winograds = 0, reals = 0;
    for (const inference::Int8Node& node : graph.nodes) {
      winograds += node.winograd ? 1 : 0;
      reals += node.is_real() ? 1 : 0;
    }
    if (winograds > 0 && reals == 0 && !graph.takes_codes) return graph;
  }
  return std::nullopt;
}

class OpenClWinogradTest : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = MakeBackendWith({});
    if (!backend.ok()) GTEST_SKIP() << "no OpenCL here: " << backend.status().message();
    backend_ = *std::move(backend);
    ref_ = *MakeRefBackend(1);
  }
  void TearDown() override {
    LimitGroups(0);
    RefuseBuilds(CL_SUCCESS);
  }

  // Kernels of a run.
  int ExpectAsRef(const Conv& conv, bool gives_codes, Backend& backend) {
    const ProgramBench bench = Make(conv, gives_codes);
    const int before = KernelsEnqueued();
    EXPECT_EQ(bench.Run(backend), bench.Run(*ref_))
        << "x " << conv.x.ToString() << " to " << conv.out << ", padding " << conv.front[0] << ","
        << conv.front[1] << " and " << conv.behind[0] << "," << conv.behind[1];
    return KernelsEnqueued() - before;
  }

  std::unique_ptr<Backend> backend_, ref_;
};

TEST_F(OpenClWinogradTest, GivesTheSumsOfRef) {
  for (const Conv& conv : NamedOnes()) {
    EXPECT_EQ(ExpectAsRef(conv, /*gives_codes=*/false, *backend_), 4)
        << "begin_sum, factors of weights and of inputs, sums";
    if (HasFailure()) return;
  }
}

TEST_F(OpenClWinogradTest, GivesTheCodesOfRef) {
  for (const Conv& conv : NamedOnes()) {
    EXPECT_EQ(ExpectAsRef(conv, /*gives_codes=*/true, *backend_), 3);
    if (HasFailure()) return;
  }
}

TEST_F(OpenClWinogradTest, WithEachDotProduct) {
  for (const char* dot : {"khr", "arm", "nvidia", "mad24", "widened"}) {
    auto backend = MakeBackendWith({.dot = dot});
    if (!backend.ok()) continue;
    SCOPED_TRACE(dot);
    ExpectAsRef({{2, 33, 7, 9}, 21, {1, 1}, {1, 1}, true}, true, **backend);
  }
}

// Of 160 images the factors of inputs do not lie in memory at once.
TEST_F(OpenClWinogradTest, ManyImagesAreComputedInTurns) {
  EXPECT_EQ(ExpectAsRef({{160, 64, 32, 32}, 1}, false, *backend_), 6);
}

// Neither room for factors nor groups large enough: two kernels of the direct product.
TEST_F(OpenClWinogradTest, WhatDoesNotFitTheDeviceIsComputedDirectly) {
  const Conv conv = {{4, 33, 27, 7}, 16};
  LimitGroups(63);
  auto small = MakeBackendWith({});
  EXPECT_EQ(ExpectAsRef(conv, false, **small), 2);
  LimitGroups(0);
  auto full = MakeBackendWith({.memory_limit_bytes = 120'000});
  EXPECT_EQ(ExpectAsRef(conv, false, **full), 2);
}

// With whatever memory the direct product and what follows it run, they do where there is Winograd.
TEST_F(OpenClWinogradTest, FactorsTakeNoMemoryThatAnythingElseNeeds) {
  const ProgramBench winograd = Make({{4, 33, 27, 7}, 16}, false);
  ProgramBench direct = winograd;
  direct.part()[0].winograd = false;
  const std::vector<std::byte> want = winograd.Run(*ref_);
  const auto runs = [&](const ProgramBench& bench, int64_t limit, bool* takes_factors) {
    auto backend = MakeBackendWith({.memory_limit_bytes = limit});
    auto executable = (*backend)->Prepare(bench.program);
    if (!executable.ok()) return false;
    *takes_factors = dynamic_cast<const TellsWays&>(**executable)
                         .IsWinograd(bench.program.part(Part::kForwardEval)[0]);
    std::vector<std::byte> got;
    if (!bench.TryRun(**executable, &got).ok()) return false;
    EXPECT_EQ(got, want) << limit;
    return true;
  };
  int fitting = 0, with_factors = 0;
  for (int64_t limit = 60'000; limit <= 420'000; limit += 12'000) {
    bool takes_factors = false;
    if (!runs(direct, limit, &takes_factors)) continue;
    ++fitting;
    EXPECT_FALSE(takes_factors);
    EXPECT_TRUE(runs(winograd, limit, &takes_factors)) << limit;
    with_factors += takes_factors ? 1 : 0;
  }
  EXPECT_GT(with_factors, 0);
  EXPECT_GT(fitting, with_factors) << "some have room for the direct one alone";
}

// Batch sizes of a graph: each finds the room that it has without Winograd.
TEST_F(OpenClWinogradTest, ProgramsOfOtherBatchSizesFindRoom) {
  const std::optional<inference::Int8Graph> graph = GraphWithWinograd();
  ASSERT_TRUE(graph.has_value());
  inference::Int8Graph direct = *graph;
  for (inference::Int8Node& node : direct.nodes) node.winograd = false;
  const auto runs = [&](const inference::Int8Graph& one, int64_t limit) {
    auto backend = MakeBackendWith({.memory_limit_bytes = limit});
    auto runner = inference::GraphRunner::Make(one, **backend);
    if (!runner.ok()) return false;
    for (const int64_t batch : {1, 7, 2, 5}) {
      const std::vector<std::byte> input = inference::RandomInput(one, 1, batch);
      std::vector<std::byte> output(static_cast<size_t>(batch * inference::OutputBytes(one)));
      if (!(*runner)->Run(input, batch, absl::MakeSpan(output)).ok()) return false;
    }
    return true;
  };
  int fitting = 0, full = 0;
  for (int64_t limit = 1 << 12; limit <= 1 << 22; limit += limit / 3) {
    const bool fits = runs(direct, limit);
    (fits ? fitting : full) += 1;
    EXPECT_TRUE(!fits || runs(*graph, limit)) << limit;
  }
  EXPECT_GT(fitting, 0);
  EXPECT_GT(full, 0);
}

// An old compiler: the direct product, and the text is compiled once alone.
TEST_F(OpenClWinogradTest, WhatTheDriverDoesNotCompileIsComputedDirectly) {
  const Conv conv = {{4, 33, 27, 7}, 16};
  RefuseBuilds(CL_BUILD_PROGRAM_FAILURE, "-DWINOGRAD");
  auto old = MakeBackendWith({});
  EXPECT_EQ(ExpectAsRef(conv, false, **old), 2);
  EXPECT_THAT((*old)->description(), testing::HasSubstr("no Winograd"));
  const int before = SourcesBuilt();
  EXPECT_EQ(ExpectAsRef(conv, false, **old), 2);
  EXPECT_EQ(SourcesBuilt(), before);
  // Of a graph's nodes it is told so.
  const std::optional<inference::Int8Graph> graph = GraphWithWinograd();
  ASSERT_TRUE(graph.has_value());
  for (Backend* backend : {old->get(), backend_.get()}) {
    if (backend == backend_.get()) RefuseBuilds(CL_SUCCESS);
    auto runner = inference::GraphRunner::Make(*graph, *backend);
    ASSERT_TRUE(runner.ok()) << runner.status();
    ASSERT_TRUE((*runner)->TimeNodes(1, 1).ok());
    for (size_t i = 0; i < graph->nodes.size(); ++i) {
      if (!graph->nodes[i].winograd) continue;
      EXPECT_EQ((*runner)->kernel(i), backend == old->get() ? "direct opencl" : "winograd opencl");
    }
    EXPECT_GT((*runner)->memory_bytes(), 0);
  }
}

// A graph's weights never change: their factors are computed in the first run.
TEST_F(OpenClWinogradTest, FactorsOfAGraphsWeightsAreComputedOnce) {
  const std::optional<inference::Int8Graph> graph = GraphWithWinograd();
  ASSERT_TRUE(graph.has_value());
  const std::vector<std::byte> input = inference::RandomInput(*graph, 1, 1);
  std::vector<std::byte> output(static_cast<size_t>(inference::OutputBytes(*graph)));
  auto runner = inference::GraphRunner::Make(*graph, *backend_);
  ASSERT_TRUE(runner.ok()) << runner.status();
  std::array<int, 2> kernels = {};
  for (int& count : kernels) {
    const int before = KernelsEnqueued();
    ASSERT_TRUE((*runner)->Run(input, 1, absl::MakeSpan(output)).ok());
    count = KernelsEnqueued() - before;
  }
  EXPECT_EQ(kernels[0] - kernels[1],
            std::count_if(graph->nodes.begin(), graph->nodes.end(),
                          [](const inference::Int8Node& node) { return node.winograd; }));
}

// Bits that the instruction tells, and the kernel's window, decide; no value does.
TEST(WinogradPlanTest, IsTakenWhereItIsExact) {
  DeviceInfo device;
  device.type = CL_DEVICE_TYPE_GPU;
  device.max_work_group = 256;
  device.local_bytes = 32 << 10;
  const auto takes = [&](const auto& change, const Conv& conv = {{2, 8, 6, 6}, 8}) {
    ProgramBench bench = Make(conv, false);
    change(bench);
    return PlanProduct(bench.program, bench.part()[0], device, {}).is_winograd;
  };
  EXPECT_TRUE(takes([](ProgramBench&) {}));
  EXPECT_FALSE(takes([](ProgramBench& bench) { bench.part()[0].winograd = false; }));
  EXPECT_FALSE(takes([](ProgramBench& bench) { bench.part()[0].attributes.stride = {1, 2}; }));
  EXPECT_FALSE(takes([](ProgramBench& bench) {
    bench.part()[0].attributes.groups = 2;
    bench.program.buffers[1].shape = {8, 4, 3, 3};
  }));
  const auto nothing = [](ProgramBench&) {};
  EXPECT_FALSE(takes(nothing, {{1, kWinogradChannels + 1, 1, 1}, 1})) << "sums may overflow";
  device.max_work_group = 64;
  EXPECT_TRUE(takes(nothing)) << "with a smaller tile";
  device.local_bytes = 4 << 10;
  EXPECT_FALSE(takes(nothing));
}

}  // namespace
}  // namespace runnel::opencl::opencl_winograd_test
