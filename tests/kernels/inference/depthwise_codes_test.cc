// Each instruction set's depthwise 3x3 convolution from codes to codes against the plain executor.

#include "kernels/models/product/depthwise_codes.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/models/int8_executor.h"
#include "kernels/models/product/requantize.h"
#include "proto/base/random.h"

namespace runnel::inference {
namespace {

constexpr int64_t kBatch = 2;

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed, RandomPurpose::kTest, 7, 0) {}
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_.Below(at_++, high - low + 1));
  }
  double Uniform() { return random_.Uniform(at_++); }
  // Of codes and weights: any, or the ends.
  int8_t Code(bool at_ends) {
    if (at_ends) return Between(0, 1) == 0 ? -127 : 127;
    return static_cast<int8_t>(Between(-127, 127));
  }

 private:
  CounterRandom random_;
  uint64_t at_ = 0;
};

// A slice of one convolution. has_halves: some sums lie halfway between two codes.
Int8Graph RandomDepthwise(int64_t channels, bool has_halves, Draws& draws) {
  Int8Graph graph;
  graph.takes_codes = graph.gives_codes = true;
  graph.nodes.resize(2);
  cpu::ConvShape& x = graph.nodes[0].node.shape;
  x.out_c = channels;
  x.out_h = draws.Between(3, 7);
  x.out_w = draws.Between(3, 12);
  Int8Node& conv = graph.nodes[1];
  conv.node.kind = NodeKind::kConv;
  conv.node.inputs[0] = 0;
  cpu::ConvShape& s = conv.node.shape;
  s.out_c = s.groups = channels;
  s.kernel_h = s.kernel_w = 3;
  s.stride_h = draws.Between(1, 2);
  s.stride_w = draws.Between(1, 2);
  s.pad_h = draws.Between(0, 2);
  s.pad_w = draws.Between(0, 2);
  conv.node.clamp = static_cast<Clamp>(draws.Between(0, 2));
  conv.coding.zero = static_cast<int32_t>(draws.Between(0, 1) * draws.Between(-127, 127));
  const bool at_ends = draws.Between(0, 3) == 0;
  for (int64_t c = 0; c < channels; ++c) {
    for (int tap = 0; tap < 9; ++tap) conv.weights.push_back(draws.Code(at_ends));
    conv.bias.push_back(static_cast<int32_t>(draws.Between(-9000, 9000)));
    conv.factors.push_back(has_halves ? Factor{1 << 30, 38}
                                      : FloatFactorOf((0.5 + draws.Uniform()) / 800));
  }
  EXPECT_TRUE(CheckAndInfer(graph).ok()) << CheckAndInfer(graph);
  return graph;
}

class DepthwiseCodesTest : public testing::TestWithParam<const CodeLoops*> {};

TEST_P(DepthwiseCodesTest, EqualsThePlainExecutor) {
  if (GetParam()->depthwise_nine.run == nullptr) GTEST_SKIP() << "the row has none";
  for (int64_t channels : {2, 3, 4, 7, 8, 9, 16, 17, 24, 32, 40, 63, 64, 65, 72, 128, 130}) {
    for (uint64_t seed = 0; seed < 24; ++seed) {
      Draws draws(100 * channels + seed);
      const bool has_halves = seed % 5 == 0;
      const Int8Graph graph = RandomDepthwise(channels, has_halves, draws);
      const Int8Node& conv = graph.nodes[1];
      const Coding& in = graph.nodes[0].coding;
      SCOPED_TRACE(testing::Message() << channels << " channels, seed " << seed);
      std::vector<int8_t> x(kBatch * graph.nodes[0].node.outputs());
      for (int8_t& code : x) code = draws.Code(seed % 4 == 0);
      ReferenceExecutor reference(graph);
      reference.RunCodes(x, kBatch, {});
      const std::optional<Requantizer> requantizer = Requantizer::Of(conv, in, *GetParam());
      ASSERT_TRUE(requantizer.has_value());
      const auto depthwise = DepthwiseCodes::Of(conv, in, *requantizer, *GetParam());
      ASSERT_EQ(depthwise.has_value(), !has_halves || !GetParam()->depthwise_nine.rounds_once);
      if (!depthwise.has_value()) continue;
      constexpr int8_t kBehind = 99;
      std::vector<int8_t> codes(kBatch * conv.node.outputs() + 1, kBehind);
      cpu::ThreadPool pool(2);
      depthwise->Run(pool, kBatch, x.data(), codes.data());
      EXPECT_EQ(codes.back(), kBehind) << "written behind the end";
      codes.pop_back();
      ASSERT_EQ(codes, reference.codes().back());
    }
  }
}

// What a processor runs has one, but for the oldest x86-64 and AVX-512 without VNNI.
TEST(DepthwiseCodes, RowsThatHaveALoop) {
  for (const CodeLoops* loops : SupportedCodeLoops()) {
    const std::string name = loops->name;
    const bool expected = name != "portable" && name != "avx512";
    EXPECT_EQ(loops->depthwise_nine.run != nullptr, expected) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, DepthwiseCodesTest, testing::ValuesIn(SupportedCodeLoops()),
                         [](const auto& row) { return std::string(row.param->name); });

}  // namespace
}  // namespace runnel::inference
