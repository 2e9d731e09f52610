// Products that make codes of their own sums: which instructions they take along, and that no byte
// changes.

#include "kernels/ir/passes/fuse_codes.h"

#include <cstring>
#include <map>

#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "kernels/models/graph_program.h"
#include "tests/conformance/random_graph.h"

namespace runnel::inference::fuse_codes_test {
namespace {

std::map<OpCode, int> CountsOf(const Program& program) {
  std::map<OpCode, int> counts;
  for (const Instruction& one : program.part(Part::kForwardEval)) ++counts[one.code];
  return counts;
}

GraphProgram Compiled(const Int8Graph& graph, bool fuses) {
  return CompileGraph(graph, 2, std::vector<size_t>{0}, graph.nodes.size() - 1,
                      {.codes_in_products = fuses})
      .value();
}

// On ref, from memory of its own.
std::vector<std::byte> OutputOf(const GraphProgram& made, const std::vector<std::byte>& input) {
  const std::unique_ptr<Backend> ref = MakeBackend("ref", 1).value();
  const Program& program = made.program;
  const auto executable = ref->Prepare(program).value();
  const auto area = [&](int64_t bytes) { return ref->Allocate(bytes).value(); };
  const auto given = area(program.input_bytes), scratch = area(program.scratch_bytes);
  const auto parameters = area(static_cast<int64_t>(made.parameters.size()));
  const auto output = area(program.output_bytes);
  std::memcpy(given->address(), input.data(), input.size());
  std::memcpy(parameters->address(), made.parameters.data(), made.parameters.size());
  Bindings bindings;
  bindings[Storage::kInput] = given->address();
  bindings[Storage::kOutput] = output->address();
  bindings[Storage::kParameters] = parameters->address();
  bindings[Storage::kScratch] = scratch->address();
  const absl::Status status = executable->Run(Part::kForwardEval, {}, bindings);
  EXPECT_TRUE(status.ok()) << status;
  return {output->address(), output->address() + program.output_bytes};
}

TEST(FuseCodes, RandomGraphsKeepTheirBytes) {
  int fused = 0, added = 0, compared = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const Int8Graph graph = RandomGraph(seed);
    bool has_real = false;
    for (const Int8Node& n : graph.nodes) has_real |= n.is_real();
    if (has_real) continue;  // they are products of their own from the first
    SCOPED_TRACE(seed);
    const GraphProgram plain = Compiled(graph, false), made = Compiled(graph, true);
    const std::vector<std::byte> input = RandomInput(graph, seed, 2);
    ASSERT_EQ(OutputOf(made, input), OutputOf(plain, input));
    ++compared;
    const std::map<OpCode, int> counts = CountsOf(made.program);
    fused += counts.contains(OpCode::kInt8ProductToCodes) ? 1 : 0;
    added += CountsOf(plain.program)[OpCode::kAddCodes] - CountsOf(made.program)[OpCode::kAddCodes];
    EXPECT_FALSE(counts.contains(OpCode::kInt8ConvForward));
    EXPECT_FALSE(counts.contains(OpCode::kPadCodes));
    EXPECT_LE(made.program.scratch_bytes, plain.program.scratch_bytes);
  }
  EXPECT_GT(compared, 80);
  EXPECT_GT(fused, 60);
  EXPECT_GE(added, 3);
}

}  // namespace
}  // namespace runnel::inference::fuse_codes_test
