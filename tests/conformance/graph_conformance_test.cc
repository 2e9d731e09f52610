// Every row of GraphExecutors, every instruction set of row `cpu`, and the programs of INT8 graphs
// on devices with other dot products and memories, against the plain loops of `ref`: bit for bit,
// logits included.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/models/graph_executor.h"
#include "kernels/models/int8_executor.h"
#include "kernels/models/program_executor.h"
#include "tests/conformance/random_graph.h"
#include "tests/kernels/integer_backends.h"

namespace runnel::inference {
namespace {

// RUNNEL_GRAPH_SEEDS: more than a build machine has time for.
uint64_t Seeds(const std::string& backend) {
  if (const char* seeds = std::getenv("RUNNEL_GRAPH_SEEDS"))
    return std::strtoull(seeds, nullptr, 10);
  return absl::StrContains(backend, "hexagon") ? 40 : 150;
}

// Rows of the table, and "program:" with a backend of integer_backends.h.
std::vector<std::string> ExecutorNames() {
  std::vector<std::string> names;
  const std::vector<std::string> there = BackendNames();
  for (const ExecutorRow& row : GraphExecutors()) {
    const std::string name(row.name);
    if (!row.is_device || std::find(there.begin(), there.end(), name) != there.end()) {
      names.push_back(name);
    }
  }
  names.emplace_back("program:ref/1");
  for (const std::string& name : ForcedBackendNames()) names.push_back("program:" + name);
  // Some products with the instruction behind them, some without.
  if (std::find(there.begin(), there.end(), "opencl") != there.end())
    names.emplace_back("program:ref,opencl@random:1/1");
  return names;
}

constexpr char kProgram[] = "program:";

class GraphConformanceTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!absl::StartsWith(GetParam(), kProgram)) return;
    auto backend = MakeIntegerBackend(GetParam().substr(sizeof kProgram - 1));
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }
  absl::StatusOr<std::unique_ptr<GraphExecutor>> Make(const Int8Graph& graph) {
    if (backend_ == nullptr) return MakeGraphExecutor(GetParam(), graph, 2);
    return MakeProgramExecutor(graph, *backend_);
  }

  std::unique_ptr<Backend> backend_;
};

// An INT8 graph has FP32 layers at its ends only; others are for the host's executors.
bool FitsDevices(const Int8Graph& graph) {
  for (size_t i = 1; i + 1 < graph.nodes.size(); ++i) {
    if (graph.nodes[i].is_real() && graph.nodes[i].node.inputs[0] != 0) return false;
  }
  return true;
}

std::string KindsOf(const Int8Graph& graph) {
  std::string kinds = graph.takes_codes ? "codes" : "samples";
  for (size_t i = 1; i < graph.nodes.size(); ++i) {
    const Int8Node& n = graph.nodes[i];
    kinds += " " + std::string(Name(n.node.kind));
    if (n.is_real()) kinds += "(fp32)";
    if (n.winograd) kinds += "(winograd)";
  }
  return kinds + (graph.gives_codes ? " codes" : " logits");
}

TEST_P(GraphConformanceTest, RandomGraphsGiveTheBytesOfRef) {
  for (uint64_t seed = 1; seed <= Seeds(GetParam()); ++seed) {
    const Int8Graph graph = RandomGraph(seed);
    if (!FitsDevices(graph)) continue;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << KindsOf(graph));
    auto executor = Make(graph);
    ASSERT_TRUE(executor.ok()) << executor.status();
    auto oracle = MakeGraphExecutor("ref", graph, 1);
    ASSERT_TRUE(oracle.ok());
    for (int64_t batch : {1, 3, 1}) {
      const std::vector<std::byte> input = RandomInput(graph, seed, batch);
      std::vector<std::byte> got(batch * OutputBytes(graph)), want(got.size());
      ASSERT_TRUE((*oracle)->Run(input, batch, absl::MakeSpan(want)).ok());
      const absl::Status status = (*executor)->Run(input, batch, absl::MakeSpan(got));
      ASSERT_TRUE(status.ok()) << status;
      const auto differs = std::mismatch(got.begin(), got.end(), want.begin()).first;
      ASSERT_EQ(differs - got.begin(), static_cast<ptrdiff_t>(want.size())) << "batch " << batch;
    }
  }
}

class InstructionSetTest : public testing::TestWithParam<const cpu::Int8Kernels*> {};

template <typename Executor>
std::vector<std::byte> OutputOf(Executor& executor, const Int8Graph& graph,
                                const std::vector<std::byte>& input, int64_t batch) {
  std::vector<float> logits(graph.gives_codes ? 0 : batch * graph.classes());
  if (graph.takes_codes) {
    const auto* codes = reinterpret_cast<const int8_t*>(input.data());
    executor.RunCodes({codes, input.size()}, batch, absl::MakeSpan(logits));
  } else {
    const auto* samples = reinterpret_cast<const float*>(input.data());
    executor.Run({samples, input.size() / sizeof(float)}, batch, absl::MakeSpan(logits));
  }
  std::vector<std::byte> output(batch * OutputBytes(graph));
  const void* from = logits.data();
  if (graph.gives_codes) from = executor.codes().back().data();
  std::memcpy(output.data(), from, output.size());
  return output;
}

TEST_P(InstructionSetTest, RandomGraphsGiveTheBytesOfRef) {
  for (uint64_t seed = 1; seed <= Seeds(GetParam()->name); ++seed) {
    const Int8Graph graph = RandomGraph(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << KindsOf(graph));
    Int8Executor executor(graph, 2, *GetParam());
    ReferenceExecutor oracle(graph);
    for (int64_t batch : {1, 3}) {
      const std::vector<std::byte> input = RandomInput(graph, seed, batch);
      ASSERT_EQ(OutputOf(executor, graph, input, batch), OutputOf(oracle, graph, input, batch));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, InstructionSetTest, testing::ValuesIn(cpu::SupportedInt8Kernels()),
                         [](const auto& row) { return std::string(row.param->name); });

TEST_P(GraphConformanceTest, OtherSizesAreRefused) {
  const Int8Graph graph = RandomGraph(1);
  auto executor = Make(graph);
  ASSERT_TRUE(executor.ok()) << executor.status();
  std::vector<std::byte> input(InputBytes(graph)), output(OutputBytes(graph));
  EXPECT_EQ((*executor)->Run(input, 2, absl::MakeSpan(output)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*executor)->Run(input, 0, absl::MakeSpan(output)).code(),
            absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(All, GraphConformanceTest, testing::ValuesIn(ExecutorNames()),
                         [](const auto& test) { return TestNameOf(test.param); });

TEST(RandomGraph, HasEveryKind) {
  std::set<std::string> kinds;
  int slices = 0, reals = 0, winograds = 0, zeros = 0, logits = 0, depthwise = 0, nines = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const Int8Graph graph = RandomGraph(seed);
    slices += graph.takes_codes && graph.gives_codes ? 1 : 0;
    for (const Int8Node& n : graph.nodes) {
      kinds.insert(std::string(Name(n.node.kind)));
      reals += n.is_real() ? 1 : 0;
      winograds += n.winograd ? 1 : 0;
      zeros += n.weight_zeros.empty() ? 0 : 1;
      logits += n.gives_logits() ? 1 : 0;
      const bool is_depthwise = n.node.kind == NodeKind::kConv && n.node.shape.depthwise();
      depthwise += is_depthwise ? 1 : 0;
      // What depthwise_codes.h takes.
      nines += is_depthwise && n.node.shape.kernel_h == 3 && n.node.shape.kernel_w == 3 &&
                       graph.input(n).coding.zero == 0
                   ? 1
                   : 0;
    }
  }
  EXPECT_EQ(kinds.size(), 7u);
  for (int count : {slices, reals, winograds, zeros, logits, depthwise, nines}) EXPECT_GE(count, 8);
}

TEST(GraphExecutors, UnknownBackendsAreNamed) {
  const absl::Status status = FindGraphExecutor("gpu").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "backend 'gpu': INT8 inference has auto, cpu, opencl, hexagon, ref");
}

}  // namespace
}  // namespace runnel::inference
