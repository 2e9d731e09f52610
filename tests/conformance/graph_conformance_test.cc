// INT8 graphs as programs on every backend, every instruction set of backend cpu, and devices with
// other dot products and memories, against ref: bit for bit, logits included.

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/models/graph_runner.h"
#include "tests/conformance/random_graph.h"
#include "tests/kernels/integer_backends.h"
#include "tests/support/case_count.h"

namespace runnel::inference::graph_conformance_test {
namespace {

uint64_t Seeds(const std::string& backend) { return CaseCountOf(backend, 150); }

// Names of integer_backends.h, and "cap:" with an instruction set of backend cpu, on two threads.
std::vector<std::string> RunnerNames() {
  std::vector<std::string> names;
  for (const std::string& set : CpuInstructionSets()) names.push_back("cap:" + set);
  for (const char* name : {"cpu/2", "opencl/1", "hexagon/1"}) {
    const std::vector<std::string> there = BackendNames();
    const std::string backend(name, std::strchr(name, '/'));
    if (std::find(there.begin(), there.end(), backend) != there.end()) names.emplace_back(name);
  }
  for (const std::string& name : ForcedBackendNames()) names.push_back(name);
  // Some products with the instruction behind them, some without.
  const std::vector<std::string> there = BackendNames();
  if (std::find(there.begin(), there.end(), "opencl") != there.end())
    names.emplace_back("ref,opencl@random:1/1");
  return names;
}

constexpr char kCap[] = "cap:";

class GraphConformanceTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto backend = absl::StartsWith(GetParam(), kCap)
                       ? MakeCappedCpuBackend(GetParam().substr(sizeof kCap - 1), 2)
                       : MakeIntegerBackend(GetParam());
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  std::unique_ptr<Backend> backend_;
};

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
  const std::unique_ptr<Backend> ref = MakeBackend("ref", 1).value();
  for (uint64_t seed = 1; seed <= Seeds(GetParam()); ++seed) {
    const Int8Graph graph = RandomGraph(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << KindsOf(graph));
    auto executor = GraphRunner::Make(graph, *backend_);
    ASSERT_TRUE(executor.ok()) << executor.status();
    auto oracle = GraphRunner::Make(graph, *ref);
    ASSERT_TRUE(oracle.ok()) << oracle.status();
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

// Values of nodes that are computed one by one are those of the whole.
TEST_P(GraphConformanceTest, SingleNodesGiveTheSameValues) {
  for (uint64_t seed = 1; seed <= Seeds(GetParam()) / 10; ++seed) {
    const Int8Graph graph = RandomGraph(seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << KindsOf(graph));
    auto runner = GraphRunner::Make(graph, *backend_);
    ASSERT_TRUE(runner.ok()) << runner.status();
    const std::vector<std::byte> input = RandomInput(graph, seed, 2);
    std::vector<std::byte> whole(2 * OutputBytes(graph)), last;
    ASSERT_TRUE((*runner)->Run(input, 2, absl::MakeSpan(whole)).ok());
    const size_t end = graph.nodes.size() - 1;
    const absl::Status status =
        (*runner)->RunNodes(input, 2, [&](size_t node, const std::byte* value) {
          if (node == end) last.assign(value, value + ValueBytes(graph, end, 2));
        });
    ASSERT_TRUE(status.ok()) << status;
    if (!graph.gives_codes && !graph.nodes.back().gives_logits()) {
      std::vector<std::byte> decoded(whole.size());
      Decode(graph.nodes.back().coding, reinterpret_cast<const int8_t*>(last.data()),
             static_cast<int64_t>(last.size()), reinterpret_cast<float*>(decoded.data()));
      last = decoded;
    }
    ASSERT_EQ(last, whole);
  }
}

TEST_P(GraphConformanceTest, OtherSizesAreRefused) {
  const Int8Graph graph = RandomGraph(1);
  auto executor = GraphRunner::Make(graph, *backend_);
  ASSERT_TRUE(executor.ok()) << executor.status();
  std::vector<std::byte> input(InputBytes(graph)), output(OutputBytes(graph));
  EXPECT_EQ((*executor)->Run(input, 2, absl::MakeSpan(output)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*executor)->Run(input, 0, absl::MakeSpan(output)).code(),
            absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(All, GraphConformanceTest, testing::ValuesIn(RunnerNames()),
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

}  // namespace
}  // namespace runnel::inference::graph_conformance_test
