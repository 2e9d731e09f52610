// Each instruction set's depthwise 3x3 convolution from codes to codes against the formula.

#include "kernels/backends/cpu/codes/depthwise_codes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/cpu/codes/code_product.h"
#include "proto/base/random.h"

namespace runnel::cpu::depthwise_codes_test {
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

// A depthwise convolution from codes to codes.
struct Depthwise {
  ConvShape shape;
  std::vector<int8_t> weights;
  CodeRule rule;
  std::vector<CodeChannel> channels;

  ProductSpec spec() const {
    return {.shape = shape, .weights = weights, .rule = &rule, .channels = channels};
  }
  int8_t CodeAt(const int8_t* x, int64_t oh, int64_t ow, int64_t c) const {
    const ConvShape& s = shape;
    int64_t sum = channels[c].offset;
    for (int tap = 0; tap < 9; ++tap) {
      const int64_t h = oh * s.stride_h - s.pad_h + tap / 3;
      const int64_t w = ow * s.stride_w - s.pad_w + tap % 3;
      if (h < 0 || h >= s.in_h || w < 0 || w >= s.in_w) continue;
      sum += x[(h * s.in_w + w) * s.in_c + c] * weights[c * 9 + tap];
    }
    return CodeOf(rule, channels[c], static_cast<int32_t>(sum));
  }
};

// has_halves: some sums lie halfway between two codes.
Depthwise RandomDepthwise(int64_t channels, bool has_halves, Draws& draws) {
  Depthwise made;
  ConvShape& s = made.shape;
  s.in_c = s.out_c = s.groups = channels;
  s.in_h = draws.Between(3, 7);
  s.in_w = draws.Between(3, 12);
  s.kernel_h = s.kernel_w = 3;
  s.stride_h = draws.Between(1, 2);
  s.stride_w = draws.Between(1, 2);
  s.pad_h = draws.Between(0, 2);
  s.pad_w = draws.Between(0, 2);
  s.out_h = (s.in_h + 2 * s.pad_h - 3) / s.stride_h + 1;
  s.out_w = (s.in_w + 2 * s.pad_w - 3) / s.stride_w + 1;
  made.rule.zero = draws.Between(0, 1) * draws.Between(-127, 127);
  made.rule.lowest = draws.Between(-127, made.rule.zero);
  made.rule.highest = draws.Between(made.rule.zero, 127);
  const bool at_ends = draws.Between(0, 3) == 0;
  for (int64_t c = 0; c < channels; ++c) {
    for (int tap = 0; tap < 9; ++tap) made.weights.push_back(draws.Code(at_ends));
    CodeChannel& channel = made.channels.emplace_back();
    channel.offset = draws.Between(-9000, 9000);
    channel.multiplier = 1 << 30;
    channel.shift = 38;
    if (has_halves) continue;
    // A factor that a float has.
    const auto factor = static_cast<float>((0.5 + draws.Uniform()) / 800);
    int exponent = 0;
    channel.multiplier = std::llround(std::ldexp(std::frexp(factor, &exponent), 30));
    channel.shift = 30 - exponent;
  }
  return made;
}

class DepthwiseCodesTest : public testing::TestWithParam<const CodeLoops*> {};

TEST_P(DepthwiseCodesTest, EqualsTheFormula) {
  if (GetParam()->depthwise_nine.run == nullptr) GTEST_SKIP() << "the row has none";
  for (int64_t channels : {2, 3, 4, 7, 8, 9, 16, 17, 24, 32, 40, 63, 64, 65, 72, 128, 130}) {
    for (uint64_t seed = 0; seed < 24; ++seed) {
      Draws draws(100 * channels + seed);
      const bool has_halves = seed % 5 == 0;
      const Depthwise made = RandomDepthwise(channels, has_halves, draws);
      const ConvShape& s = made.shape;
      SCOPED_TRACE(testing::Message() << channels << " channels, seed " << seed);
      std::vector<int8_t> x(kBatch * s.in_elements());
      for (int8_t& code : x) code = draws.Code(seed % 4 == 0);
      const std::optional<Requantizer> requantizer = Requantizer::Of(made.spec(), *GetParam());
      ASSERT_TRUE(requantizer.has_value());
      const auto depthwise = DepthwiseCodes::Of(made.spec(), *requantizer, *GetParam());
      ASSERT_EQ(depthwise.has_value(), !has_halves || !GetParam()->depthwise_nine.rounds_once);
      if (!depthwise.has_value()) continue;
      constexpr int8_t kBehind = 99;
      std::vector<int8_t> codes(kBatch * s.out_elements() + 1, kBehind);
      ThreadPool pool(2);
      depthwise->Run(pool, kBatch, x.data(), codes.data());
      EXPECT_EQ(codes.back(), kBehind) << "written behind the end";
      const int8_t* got = codes.data();
      for (int64_t row = 0; row < kBatch * s.out_h; ++row) {
        const int8_t* image = &x[row / s.out_h * s.in_elements()];
        for (int64_t i = 0; i < s.out_w * s.out_c; ++i) {
          ASSERT_EQ(*got++, made.CodeAt(image, row % s.out_h, i / s.out_c, i % s.out_c));
        }
      }
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
}  // namespace runnel::cpu::depthwise_codes_test
