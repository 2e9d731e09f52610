// Codes that lie packed on the device (NC4HW4): which do, and that a chain of all operators that take them gives the bytes
// of ref. Skipped where there is no device, as far as one is needed.

#include <algorithm>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "kernels/backends/opencl/packing.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/ir/arithmetic/code_rule.h"
#include "kernels/models/graph_program.h"
#include "kernels/models/graph_runner.h"
#include "proto/base/random.h"
#include "tests/conformance/random_graph.h"
#include "tests/kernels/program_bench.h"

namespace runnel::opencl::opencl_packing_test {
namespace {

// Appends operators of an INT8 graph to a program, one behind the other.
class Chain {
 public:
  explicit Chain(const Shape& input) {
    bench.program.batch = input[0];
    bench.program.constants = &kConstants;
    const BufferIndex x = Given(Storage::kInput, input, 31, /*scaled=*/false);
    last = Value(input);
    bench.Emit(OpCode::kCodesToChannelsFirst, {x}, last);
  }

  void Conv(int64_t out, int64_t groups, int64_t side, int64_t padding, bool winograd = false) {
    const Shape& x = ShapeOf(last);
    const Shape weight = {out, x[1] / groups, side, side};
    const int64_t grown = 2 * padding - side + 1;
    const Shape shape = {x[0], out, x[2] + grown, x[3] + grown};
    const BufferIndex sums = bench.Add({Storage::kScratch, DType::kInt32, shape, 0, true});
    const BufferIndex weights = Given(Storage::kParameters, weight, 7, /*scaled=*/true);
    Instruction& product = bench.Emit(OpCode::kInt8ConvForward, {last, weights}, sums);
    product.attributes = {.kind = OpKind::kConv, .out_channels = out, .kernel = {side, side}};
    product.attributes.padding = {padding, padding};
    product.attributes.groups = groups;
    product.winograd = winograd;
    Requantize(sums, 1 << 22);
  }
  void Requantize(BufferIndex from, int64_t multiplier) {
    const Shape shape = ShapeOf(from);
    const BufferIndex rule = Rule({.zero = 1, .lowest = -31, .highest = 31},
                                  {.offset = -2, .multiplier = multiplier, .shift = 27});
    last = Value(shape);
    bench.Emit(OpCode::kRequantizeCodes, {from, rule}, last);
  }
  void Pad(int64_t by) {
    const Shape& x = ShapeOf(last);
    const BufferIndex y = Value({x[0], x[1], x[2] + 2 * by, x[3] + 2 * by});
    bench.Emit(OpCode::kPadCodes, {last, Rule({.zero_a = 9}, {})}, y);
    last = y;
  }
  void MaxPool() {
    const Shape& x = ShapeOf(last);
    const BufferIndex y = Value({x[0], x[1], x[2] / 2, x[3] / 2});
    bench.Emit(OpCode::kInt8MaxPoolForward, {last}, y).attributes = {
        .kind = OpKind::kMaxPool, .kernel = {2, 2}, .stride = {2, 2}};
    last = y;
  }
  void Average(bool is_global) {
    const Shape& x = ShapeOf(last);
    const Shape shape = is_global ? Shape{x[0], x[1], 1, 1} : Shape{x[0], x[1], x[2] / 2, x[3] / 2};
    const BufferIndex sums = bench.Add({Storage::kScratch, DType::kInt32, shape, 0, true});
    bench
        .Emit(is_global ? OpCode::kInt8GlobalAvgPoolForward : OpCode::kInt8AvgPoolForward, {last},
              sums)
        .attributes = {.kind = is_global ? OpKind::kGlobalAvgPool : OpKind::kAvgPool,
                       .kernel = {2, 2},
                       .stride = {2, 2}};
    Requantize(sums, 1 << 25);
  }
  void Add(BufferIndex other) {
    const BufferIndex y = Value(ShapeOf(last));
    const CodeRule rule = {
        .zero_a = 1, .factor_a = 3, .factor_b = 2, .shift = 2, .lowest = -31, .highest = 31};
    bench.Emit(OpCode::kAddCodes, {last, other, Rule(rule, {})}, y);
    last = y;
  }
  void Finish() {
    const BufferIndex y = bench.Add({Storage::kOutput, DType::kInt8, ShapeOf(last)});
    bench.Emit(OpCode::kCodesToChannelsLast, {last}, y);
  }

  const Shape& ShapeOf(BufferIndex index) const {
    return bench.program.buffers[static_cast<size_t>(index)].shape;
  }
  int64_t packed() const {
    const std::vector<bool> all = FindPacked(bench.program);
    return std::count(all.begin(), all.end(), true);
  }

  ProgramBench bench;
  BufferIndex last = 0;

 private:
  static constexpr std::byte kConstants = {};

  BufferIndex Value(const Shape& shape) {
    return bench.Add({Storage::kScratch, DType::kInt8, shape, 0, true});
  }
  BufferIndex Given(Storage storage, const Shape& shape, int most, bool scaled) {
    const CounterRandom random(41, RandomPurpose::kTest, 5, streams_++);
    std::vector<std::byte> bytes(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < bytes.size(); ++i) {
      const uint32_t draw = random.Below(i, static_cast<uint32_t>(2 * most + 1));
      bytes[i] = static_cast<std::byte>(static_cast<int>(draw) - most);
    }
    return bench.AddGiven({storage, DType::kInt8, shape, 0, scaled}, std::move(bytes));
  }
  BufferIndex Rule(const CodeRule& rule, const CodeChannel& channel) {
    std::vector<std::byte> words(sizeof rule + sizeof channel);
    std::memcpy(words.data(), &rule, sizeof rule);
    std::memcpy(words.data() + sizeof rule, &channel, sizeof channel);
    const Shape shape = {static_cast<int64_t>(words.size() / sizeof(int64_t))};
    return bench.AddGiven({Storage::kParameters, DType::kInt64, shape}, std::move(words));
  }

  uint64_t streams_ = 0;
};

// With so many channels behind the first convolution.
Chain EveryOperator(int64_t channels) {
  Chain chain({2, 8, 9, 7});
  chain.Conv(channels, 1, 3, 1);
  chain.Pad(1);
  chain.MaxPool();
  const BufferIndex shortcut = chain.last;
  chain.Conv(channels, channels, 3, 1);
  chain.Add(shortcut);
  chain.Conv(24, 3, 1, 0);
  chain.Conv(16, 1, 3, 1, /*winograd=*/true);
  chain.Requantize(chain.last, 3 << 26);
  chain.Average(/*is_global=*/false);
  chain.Average(/*is_global=*/true);
  chain.Finish();
  return chain;
}

TEST(PackingTest, AChainOfOperatorsStaysPacked) {
  // The samples, convolutions' three, padding, pool, depthwise, sum, clamp and mean; not the mean of one position.
  EXPECT_EQ(EveryOperator(12).packed(), 10);
  Chain part_of_another = EveryOperator(12);
  part_of_another.bench.program.constants = nullptr;
  EXPECT_EQ(part_of_another.packed(), 0) << "others may read its scratch";
  EXPECT_EQ(EveryOperator(15).packed(), 5) << "15 channels fill no cells";
}

TEST(PackingTest, ChainsGiveTheBytesOfRef) {
  auto backend = MakeBackendWith({});
  if (!backend.ok()) GTEST_SKIP() << "no OpenCL here: " << backend.status().message();
  for (const int64_t channels : {12, 15, 36}) {
    Chain chain = EveryOperator(channels);
    const std::vector<std::byte> want = chain.bench.Run(**MakeRefBackend(1));
    EXPECT_EQ(chain.bench.Run(**backend), want) << channels << " channels";
    chain.bench.program.constants = nullptr;
    EXPECT_EQ(chain.bench.Run(**backend), want) << channels << " channels, not packed";
  }
}

// A value that somebody reads by another name, or without a kernel for cells, stays as it is.
TEST(PackingTest, WhatOthersReadIsNotPacked) {
  Chain chain({1, 8, 4, 4});
  chain.Conv(8, 1, 3, 1);
  const BufferIndex read = chain.last;
  chain.Conv(8, 1, 3, 1);
  chain.Finish();
  EXPECT_EQ(chain.packed(), 3);
  for (const BufferIndex by : {read, chain.bench.View(read)}) {
    Chain other = chain;
    const BufferIndex copy = other.bench.Add({Storage::kScratch, DType::kInt8, {1, 128}, 0, true});
    other.bench.Emit(OpCode::kCopy, {by}, copy);
    EXPECT_EQ(other.packed(), 2);
  }
}

// In place codes may not change their order.
TEST(PackingTest, InPlaceAllLieAlike) {
  Chain chain({1, 8, 4, 4});
  chain.Conv(8, 1, 3, 1);
  const BufferIndex x = chain.last;
  chain.Requantize(x, 1 << 26);
  const BufferIndex y = chain.last;
  chain.bench.program.buffers[static_cast<size_t>(y)].offset_bytes =
      chain.bench.program.buffers[static_cast<size_t>(x)].offset_bytes;
  EXPECT_EQ(chain.packed(), 3);
  const BufferIndex copy = chain.bench.Add({Storage::kScratch, DType::kInt8, {1, 128}, 0, true});
  chain.bench.Emit(OpCode::kCopy, {y}, copy);
  EXPECT_EQ(chain.packed(), 1) << "y has a reader without cells, so x too";
}

// Packed values of a compiled graph; 0: it has nodes in FP32.
int64_t PackedOf(const inference::Int8Graph& graph) {
  auto made = inference::CompileGraph(graph, 2, std::vector<size_t>{0}, graph.nodes.size() - 1,
                                      {false, true});
  if (!made.ok()) return 0;
  made->program.constants = made->parameters.data();
  const std::vector<bool> all = FindPacked(made->program);
  return std::count(all.begin(), all.end(), true);
}

std::vector<std::byte> OutputOf(const inference::Int8Graph& graph, Backend& backend) {
  constexpr int64_t kBatch = 3;
  const std::vector<std::byte> input = inference::RandomInput(graph, 1, kBatch);
  std::vector<std::byte> output(static_cast<size_t>(kBatch * inference::OutputBytes(graph)));
  auto runner = inference::GraphRunner::Make(graph, backend);
  EXPECT_TRUE(runner.ok()) << runner.status();
  const absl::Status status = (*runner)->Run(input, kBatch, absl::MakeSpan(output));
  EXPECT_TRUE(status.ok()) << status;
  return output;
}

TEST(PackingTest, RandomGraphsWithPackedValuesGiveTheBytesOfRef) {
  auto backend = MakeBackendWith({});
  if (!backend.ok()) GTEST_SKIP() << "no OpenCL here: " << backend.status().message();
  int graphs = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const inference::Int8Graph graph = inference::RandomGraph(seed);
    if (PackedOf(graph) == 0) continue;
    ++graphs;
    EXPECT_EQ(OutputOf(graph, **backend), OutputOf(graph, **MakeRefBackend(1))) << "seed " << seed;
  }
  EXPECT_GE(graphs, 8);
}

}  // namespace
}  // namespace runnel::opencl::opencl_packing_test
