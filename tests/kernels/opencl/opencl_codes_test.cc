// Products of INT8 inference that give codes: the bytes of `ref`, and of the same backend with the
// sums in memory; which products are done so. Skipped where there is no device.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/opencl/device/tile.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "kernels/backends/opencl/product/code_pairs.h"
#include "kernels/backends/opencl/product/product_plan.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/ir/arithmetic/code_rule.h"
#include "kernels/models/graph_program.h"
#include "kernels/models/graph_runner.h"
#include "proto/base/random.h"
#include "tests/conformance/random_graph.h"
#include "tests/kernels/opencl/opencl_faults.h"
#include "tests/kernels/opencl/uneven_conv.h"
#include "tests/kernels/program_bench.h"

namespace runnel::opencl::opencl_codes_test {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Values in -127..127; `stream` tells operands apart.
BufferIndex AddCodes(ProgramBench& bench, Storage storage, const Shape& shape, uint64_t stream) {
  const CounterRandom random(11, RandomPurpose::kTest, stream, 3);
  std::vector<std::byte> bytes(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(static_cast<int>(random.Uniform(i) * 255) - 127);
  return bench.AddGiven({storage, DType::kInt8, shape, 0, true}, std::move(bytes));
}

BufferIndex AddRule(ProgramBench& bench, const CodeRule& rule,
                    const std::vector<CodeChannel>& channels) {
  std::vector<std::byte> bytes(sizeof rule + channels.size() * sizeof(CodeChannel));
  std::memcpy(bytes.data(), &rule, sizeof rule);
  std::memcpy(bytes.data() + sizeof rule, channels.data(), bytes.size() - sizeof rule);
  const auto words = static_cast<int64_t>(bytes.size() / sizeof(int64_t));
  return bench.AddGiven({Storage::kParameters, DType::kInt64, {words}}, std::move(bytes));
}

struct Case {
  std::string name;
  Shape x, weight, sums;
  OpSpec op;
  int64_t rows_of = 0;  // groups whose sums of rows are subtracted; 0: none
  bool gives_sums = false;
  bool has_one_channel = false;
};

OpSpec Conv(std::vector<int64_t> kernel, std::vector<int64_t> stride, std::vector<int64_t> padding,
            int64_t groups, int64_t out) {
  OpSpec op;
  op.kind = OpKind::kConv;
  op.kernel = {kernel[0], kernel[1]};
  op.stride = {stride[0], stride[1]};
  op.padding = {padding[0], padding[1]};
  op.groups = groups;
  op.out_channels = out;
  return op;
}

OpSpec Linear(int64_t out) {
  OpSpec op;
  op.kind = OpKind::kLinear;
  op.out_channels = out;
  return op;
}

std::vector<Case> Cases() {
  const UnevenConv uneven;
  const Shape &x = uneven.x, &weight = uneven.weight, &sums = uneven.y;
  const OpSpec depthwise = Conv({3, 3}, {1, 1}, {1, 1}, 9, 9);
  return {
      {"grouped", x, weight, sums, uneven.op},
      {"grouped rows", x, weight, sums, uneven.op, 2},
      {"one rule", x, weight, sums, uneven.op, 0, false, true},
      {"depthwise rows", {2, 9, 6, 5}, {9, 1, 3, 3}, {2, 9, 6, 5}, depthwise, 9},
      {"point", {2, 21, 5, 5}, {37, 21, 1, 1}, {2, 37, 5, 5}, Conv({1, 1}, {1, 1}, {0, 0}, 1, 37)},
      {"linear", {19, 70}, {35, 70}, {19, 35}, Linear(35)},
      {"linear rows sums", {19, 70}, {35, 70}, {19, 35}, Linear(35), 1, true}};
}

// Rules at their ends: halves, sums beyond 31 bits, a clamp on both sides.
std::vector<CodeChannel> ChannelsOf(const Case& one) {
  const CounterRandom random(12, RandomPurpose::kTest, 4, 4);
  std::vector<CodeChannel> channels(one.has_one_channel ? 1 : static_cast<size_t>(one.sums[1]));
  for (size_t c = 0; c < channels.size(); ++c) {
    CodeChannel& channel = channels[c];
    const auto draw = [&](uint64_t i, int64_t count) {
      return static_cast<int64_t>(random.Uniform(8 * c + i) * static_cast<double>(count));
    };
    channel.offset = draw(0, 20001) - 10000;
    channel.shift = 30 + draw(1, 8);
    channel.multiplier = draw(2, int64_t{1} << 31);
    if (c % 4 == 1)
      channel = {.offset = draw(0, 99), .multiplier = 1 << 20, .shift = 29};  // halves
    if (c % 8 == 2) channel = {.offset = int64_t{5} << 31, .multiplier = 60, .shift = 31};
    if (c % 8 == 6) channel = {.offset = -(int64_t{5} << 31), .multiplier = 60, .shift = 31};
    if (one.rows_of > 0) channel.weight_zero = draw(3, 255) - 127;
  }
  return channels;
}

// With the sums in `storage`: only those in the scratch may be nowhere.
ProgramBench Make(const Case& one, Storage storage) {
  ProgramBench bench;
  const BufferIndex x = AddCodes(bench, Storage::kInput, one.x, 1);
  const BufferIndex weight = AddCodes(bench, Storage::kParameters, one.weight, 2);
  const bool is_linear = one.op.kind == OpKind::kLinear;
  const OpCode code = is_linear ? OpCode::kInt8LinearForward : OpCode::kInt8ConvForward;
  const BufferIndex sums = bench.Add({storage, DType::kInt32, one.sums, 0, true});
  bench.Emit(code, {x, weight}, sums).attributes = one.op;
  const CodeRule rule = {.zero = 3, .lowest = -100, .highest = 90};
  std::vector<BufferIndex> inputs = {sums, AddRule(bench, rule, ChannelsOf(one))};
  if (one.rows_of > 0) {
    std::vector<int64_t> shape, ones;
    for (int axis = 0; axis < one.sums.rank(); ++axis) {
      shape.push_back(axis == 1 ? one.rows_of : one.sums[axis]);
      ones.push_back(axis == 0 ? one.rows_of : one.weight[axis]);
    }
    inputs.push_back(bench.Add({Storage::kScratch, DType::kInt32, *Shape::Create(shape), 0, true}));
    const BufferIndex other = AddCodes(bench, Storage::kParameters, *Shape::Create(ones), 3);
    Instruction& rows = bench.Emit(code, {x, other}, inputs.back());
    rows.attributes = one.op;
    rows.attributes.out_channels = one.rows_of;
  }
  const DType dtype = one.gives_sums ? DType::kInt32 : DType::kInt8;
  bench.Emit(OpCode::kRequantizeCodes, inputs,
             bench.Add({Storage::kOutput, dtype, one.sums, 0, !one.gives_sums}));
  bench.program.batch = one.x[0];
  return bench;
}

size_t PairsOf(const inference::Int8Graph& graph, bool keeps_inputs) {
  const auto made = inference::CompileGraph(graph, 1, std::vector<size_t>{0},
                                            graph.nodes.size() - 1, {false, keeps_inputs});
  return made.ok() ? FindCodePairs(made->program).size() : 0;  // not: of nodes in FP32
}

// A random graph with a pair, but none without kept inputs; or none.
std::optional<inference::Int8Graph> GraphWithKeptInputs() {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    inference::Int8Graph graph = inference::RandomGraph(seed);
    if (PairsOf(graph, true) > 0 && PairsOf(graph, false) == 0) return graph;
  }
  return std::nullopt;
}

class OpenClCodesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto session = Session::Open({});
    if (!session.ok()) GTEST_SKIP() << "no OpenCL here: " << session.status().message();
    device_ = (*session)->device();
  }

  DeviceInfo device_;
};

// The bytes of all cases, sums in memory or not, are those of `ref`.
void ExpectBytesOfRef(const Options& options, const std::vector<Case>& cases) {
  auto backend = MakeBackendWith(options);
  ASSERT_TRUE(backend.ok()) << backend.status();
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const ProgramBench joined = Make(one, Storage::kScratch), apart = Make(one, Storage::kStash);
    ASSERT_THAT(FindCodePairs(joined.program), SizeIs(1));
    ASSERT_THAT(FindCodePairs(apart.program), IsEmpty());
    const std::vector<std::byte> want = joined.Run(**MakeRefBackend(1));
    const int before = KernelsEnqueued();
    EXPECT_EQ(joined.Run(**backend), want);
    const int between = KernelsEnqueued();
    EXPECT_EQ(apart.Run(**backend), want);
    const int others = one.rows_of > 0 ? 2 : 0;  // begin_sum and the product
    EXPECT_EQ(between - before, 1 + others);
    EXPECT_EQ(KernelsEnqueued() - between, 3 + others);
  }
}

TEST_F(OpenClCodesTest, AProductThatGivesCodesHasTheBytesOfBothKernels) {
  ExpectBytesOfRef({}, Cases());
}

TEST_F(OpenClCodesTest, WithEachDotProduct) {
  int found = 0;
  for (const char* dot : {"khr", "arm", "nvidia", "mad24", "widened"}) {
    if (!ChooseDots(device_, dot).ok()) continue;
    SCOPED_TRACE(dot);
    ++found;
    ExpectBytesOfRef({.dot = dot}, Cases());
  }
  EXPECT_GE(found, 2);
}

TEST_F(OpenClCodesTest, WithEachWayToTheHostsMemory) {
  ExpectBytesOfRef({.memory = "copied"}, Cases());
}

// Builds take long under PoCL: some of the tiles.
TEST_F(OpenClCodesTest, TheTileCannotBeSeenInTheCodes) {
  int fitting = 0;
  for (size_t i = 1; i < Tiles().size(); i += 5) {
    const Tile& tile = Tiles()[i];
    if (!Fits(tile, device_)) continue;
    SCOPED_TRACE(ToText(tile));
    ++fitting;
    ExpectBytesOfRef({.tile = ToText(tile)}, Cases());
  }
  EXPECT_GT(fitting, 1);
}

// Its sums are added up from slices: in memory.
TEST_F(OpenClCodesTest, AProductThatIsCutIntoSlicesStaysApart) {
  constexpr int64_t kDepth = kMaxInt32Products + 100;
  const ProgramBench bench =
      Make({"long", {2, kDepth}, {3, kDepth}, {2, 3}, Linear(3)}, Storage::kScratch);
  ASSERT_THAT(FindCodePairs(bench.program), SizeIs(1));
  auto backend = MakeBackendWith({});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const int before = KernelsEnqueued();
  EXPECT_EQ(bench.Run(**backend), bench.Run(**MakeRefBackend(1)));
  EXPECT_EQ(KernelsEnqueued() - before, 5);
}

// The executor of INT8 graphs keeps the inputs that this takes.
TEST_F(OpenClCodesTest, AGraphIsComputedByThem) {
  const std::optional<inference::Int8Graph> graph = GraphWithKeptInputs();
  ASSERT_TRUE(graph.has_value());
  const std::vector<std::byte> input = inference::RandomInput(*graph, 1, 1);
  std::vector<std::byte> output(static_cast<size_t>(inference::OutputBytes(*graph)));
  const auto run = [&] {
    auto backend = MakeBackendWith({});
    auto executor = inference::GraphRunner::Make(*graph, **backend);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return (*executor)->Run(input, 1, absl::MakeSpan(output));
  };
  EXPECT_TRUE(run().ok());
  SpoilBuilds("-DCODES", CL_OUT_OF_RESOURCES);
  EXPECT_FALSE(run().ok());
  SpoilBuilds("", 0);
}

// The program of a case, with other instructions and places.
class CodePairsTest : public testing::Test {
 protected:
  CodePairsTest() : bench_(Make(Cases()[0], Storage::kScratch)) {}
  Buffer& buffer(size_t index) { return bench_.program.buffers[index]; }
  std::vector<CodePair> pairs() const { return FindCodePairs(bench_.program); }
  std::vector<Instruction>& part() { return bench_.part(); }
  BufferIndex View(BufferIndex of) { return bench_.View(of); }

  static constexpr BufferIndex kX = 0, kWeight = 1, kSums = 2, kCodes = 4;
  ProgramBench bench_;
};

TEST_F(CodePairsTest, SumsThatSomebodyElseReadsStay) {
  const BufferIndex other = bench_.Add(buffer(kSums));
  for (const BufferIndex read : {kSums, View(kSums)}) {
    for (const size_t at : {size_t{1}, size_t{2}}) {
      const std::vector<Instruction> before = part();
      part().insert(part().begin() + static_cast<ptrdiff_t>(at), {OpCode::kCopy, {read}, {other}});
      EXPECT_THAT(pairs(), IsEmpty()) << "read by instruction " << at;
      part() = before;
    }
  }
  bench_.Emit(OpCode::kCopy, {other}, View(kSums));
  bench_.Emit(OpCode::kCopy, {View(kSums)}, other);
  EXPECT_THAT(pairs(), SizeIs(1)) << "their place is another value's then";
}

TEST_F(CodePairsTest, WhatTheProductReadsHasToStay) {
  const BufferIndex other = bench_.Add(buffer(kX));
  part().insert(part().begin() + 1, {OpCode::kCopy, {other}, {View(kX)}});
  EXPECT_THAT(pairs(), IsEmpty());
  part().erase(part().begin() + 1);
  EXPECT_THAT(pairs(), SizeIs(1));
  const int64_t offset = buffer(kX).offset_bytes;
  buffer(kCodes).storage = Storage::kInput;
  buffer(kCodes).offset_bytes = offset + 64;
  EXPECT_THAT(pairs(), IsEmpty()) << "codes in the place of the input";
  buffer(kCodes).offset_bytes = offset + buffer(kX).bytes();
  EXPECT_THAT(pairs(), SizeIs(1));
}

TEST_F(CodePairsTest, TrainingAndOtherSumsArePassedBy) {
  std::swap(bench_.program.parts[static_cast<size_t>(Part::kForward)], part());
  EXPECT_THAT(pairs(), IsEmpty()) << "a backward may read the scratch";
  std::swap(bench_.program.parts[static_cast<size_t>(Part::kForward)], part());
  part()[0].code = OpCode::kInt8GlobalAvgPoolForward;
  EXPECT_THAT(pairs(), IsEmpty());
}

// Of a compiled graph every product but those of row sums, where inputs are kept; without that few.
TEST(CodePairsOfGraphs, AllProductsGiveCodes) {
  size_t products = 0, kept = 0, found = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const inference::Int8Graph graph = inference::RandomGraph(seed);
    for (const bool keeps_inputs : {false, true}) {
      const auto made = inference::CompileGraph(graph, 3, std::vector<size_t>{0},
                                                graph.nodes.size() - 1, {false, keeps_inputs});
      if (!made.ok()) continue;  // of nodes in FP32
      (keeps_inputs ? kept : found) += FindCodePairs(made->program).size();
      if (keeps_inputs) continue;
      const std::vector<Instruction>& part = made->program.part(Part::kForwardEval);
      for (const Instruction& one : part) {
        if (one.code != OpCode::kRequantizeCodes) continue;
        products += static_cast<size_t>(
            std::count_if(part.begin(), part.end(), [&](const Instruction& other) {
              return other.outputs[0] == one.inputs[0] && IsProduct(other.code);
            }));
      }
    }
  }
  EXPECT_GT(products, 100u);
  EXPECT_EQ(kept, products);
  EXPECT_LT(found, products);
}

}  // namespace
}  // namespace runnel::opencl::opencl_codes_test
