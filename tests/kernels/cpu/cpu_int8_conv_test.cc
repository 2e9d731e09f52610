// The three passes of INT8 convolutions and linear layers, every instruction set of this machine,
// one and two threads, against loops over all products.

#include <tuple>

#include "kernels/ir/arithmetic/integer_math.h"
#include "proto/base/host/caches.h"
#include "tests/kernels/cpu/cpu_int8_harness.h"
#include "tests/kernels/cpu/int8_packed.h"

namespace runnel::cpu::cpu_int8_conv_test {
namespace {

constexpr int32_t kRubbish = 0x5A5A5A5A;

class Int8Conv : public testing::TestWithParam<std::tuple<const Int8Kernels*, int>> {
 protected:
  const Int8Kernels& kernels() const { return *std::get<0>(GetParam()); }
  int threads() const { return std::get<1>(GetParam()); }

  template <typename Call>
  void InWorkspace(const ConvShape& shape, ConvPass pass, const Call& call) {
    GuardedWorkspace workspace(Int8WorkspaceBytes(kernels(), shape, pass, threads()));
    call(Int8Context{&kernels(), &pool_, workspace.data()});
    EXPECT_TRUE(workspace.intact()) << Describe(shape);
  }

  // What `call` computes into its last two arguments: the sums and the largest of them.
  template <typename Sum, typename Expected, typename Call>
  void Check(const ConvCase& c, ConvPass pass, const std::vector<Expected>& expected,
             const char* name, const Call& call) {
    std::vector<Sum> sums(expected.size() + 16, kRubbish);
    Sum largest = -1;
    InWorkspace(c.shape, pass,
                [&](const Int8Context& context) { call(context, sums.data(), &largest); });
    EXPECT_EQ(FirstDifference(sums, expected), "") << name << " " << Describe(c.shape);
    EXPECT_EQ(largest, LargestOf(expected)) << name << " " << Describe(c.shape);
    EXPECT_EQ(sums[expected.size()], kRubbish);
  }

  void CheckForward(const ConvCase& c) {
    Check<int32_t>(c, ConvPass::kForward, c.y, "forward",
                   [&](const Int8Context& context, int32_t* y, int32_t* largest) {
                     Int8ConvForward(context, c.shape, c.x.data(), c.w.data(), y, largest);
                   });
  }

  void CheckInputGradient(const ConvCase& c) {
    Check<int32_t>(c, ConvPass::kInputGradient, c.dx, "input-gradient",
                   [&](const Int8Context& context, int32_t* dx, int32_t* largest) {
                     Int8ConvInputGradient(context, c.shape, c.dy.data(), c.w.data(), dx, largest);
                   });
  }

  void CheckWeightGradient(const ConvCase& c) {
    Check<int32_t>(c, ConvPass::kWeightGradient, c.dw, "weight-gradient",
                   [&](const Int8Context& context, int32_t* dw, int32_t* largest) {
                     Int8ConvWeightGradient(context, c.shape, c.dy.data(), c.x.data(), dw, largest);
                   });
  }

  void CheckWide(const ConvCase& c) {
    Check<int64_t>(c, ConvPass::kWideWeightGradient, c.dw, "wide weight-gradient",
                   [&](const Int8Context& context, int64_t* dw, int64_t* largest) {
                     Int8ConvWeightGradientWide(context, c.shape, c.dy.data(), c.x.data(), dw,
                                                largest);
                   });
  }

  // Added to the gradient of the same samples.
  void CheckAdded(const ConvCase& c) {
    std::vector<int32_t> dw(c.dw.begin(), c.dw.end());
    std::vector<int64_t> wide(c.dw.begin(), c.dw.end());
    int32_t largest = -1;
    int64_t largest_wide = -1;
    InWorkspace(c.shape, ConvPass::kWeightGradient, [&](const Int8Context& context) {
      Int8ConvWeightGradient(context, c.shape, c.dy.data(), c.x.data(), dw.data(), &largest, true);
    });
    InWorkspace(c.shape, ConvPass::kWideWeightGradient, [&](const Int8Context& context) {
      Int8ConvWeightGradientWide(context, c.shape, c.dy.data(), c.x.data(), wide.data(),
                                 &largest_wide, true);
    });
    std::vector<int64_t> twice = c.dw;
    for (int64_t& sum : twice) sum *= 2;
    EXPECT_EQ(FirstDifference(dw, twice), "") << "added " << Describe(c.shape);
    EXPECT_EQ(largest, LargestOf(twice)) << "added " << Describe(c.shape);
    EXPECT_TRUE(std::equal(wide.begin(), wide.end(), twice.begin(), twice.end()))
        << "added, wide " << Describe(c.shape);
    EXPECT_EQ(largest_wide, LargestOf(twice)) << "added, wide " << Describe(c.shape);
  }

  // Rounded as they leave the product, by what the largest asks for and by less.
  void CheckRounded(const ConvCase& c) {
    if (c.shape.depthwise()) return;
    const int bits = BitsOf(LargestOf(c.dw));
    for (const bool half_away : {false, true}) {
      // Two of the three a case: what saturates, what does not and the sums themselves each meet
      // both roundings within a few cases.
      const int shifts[] = {std::max(0, bits - 2), std::max(0, bits - 9), 0};
      const int shift = shifts[rounded_++ % 3];
      std::vector<int8_t> rounded(c.dw.size() + 16, 0x5A), expected(c.dw.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        const int64_t sum = c.dw[i];
        expected[i] = SaturateMantissa(shift == 0  ? sum
                                       : half_away ? RoundHalfAway(sum, shift)
                                                   : RoundPseudoStochastic(sum, shift));
      }
      int32_t largest = -1;
      InWorkspace(c.shape, ConvPass::kRoundedWeightGradient, [&](const Int8Context& context) {
        largest =
            Int8ConvWeightGradientRounded(context, c.shape, c.dy.data(), c.x.data(),
                                          {.shift = shift, .half_away = half_away}, rounded.data());
      });
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), rounded.begin()))
          << "rounded by " << shift << " " << Describe(c.shape);
      EXPECT_EQ(largest, LargestOf(c.dw)) << "rounded " << Describe(c.shape);
      EXPECT_EQ(rounded[c.dw.size()], 0x5A);
    }
  }

  void CheckAll(const ConvShape& shape, uint64_t seed) {
    const ConvCase c(shape, seed);
    CheckForward(c);
    CheckInputGradient(c);
    CheckWeightGradient(c);
    CheckWide(c);
    CheckAdded(c);
    CheckRounded(c);
  }

  ThreadPool pool_{threads()};
  int rounded_ = 0;  // calls of rounding
};

TEST_P(Int8Conv, ShapesOfNetworks) {
  uint64_t seed = 1;
  for (const ConvShape& shape : {
           MakeShape(3, 12, 12, 3, 64, 3, 3, 1, 1, 1),    // the first layer of VGG
           MakeShape(5, 8, 8, 64, 128, 3, 3, 1, 1, 1),    //
           MakeShape(8, 4, 4, 128, 96, 3, 3, 1, 1, 1),    //
           MakeShape(9, 2, 2, 160, 72, 3, 3, 1, 1, 1),    // more padding than image
           MakeShape(2, 14, 14, 1, 20, 5, 5, 1, 0, 0),    // LeNet
           MakeShape(4, 12, 12, 20, 50, 5, 5, 1, 0, 0),   //
           MakeShape(4, 16, 16, 64, 64, 3, 3, 2, 1, 1),   // strides of residual networks
           MakeShape(4, 9, 9, 64, 128, 1, 1, 2, 0, 0),    //
           MakeShape(2, 23, 21, 3, 24, 7, 7, 2, 3, 3),    //
           MakeShape(6, 1, 40, 5, 70, 1, 5, 2, 0, 2),     // one dimension
           MakeShape(3, 1, 33, 48, 16, 1, 3, 1, 0, 1),    //
           MakeShape(3, 5, 5, 24, 36, 3, 3, 1, 1, 1, 3),  // groups
           MakeShape(5, 6, 6, 20, 10, 1, 1, 1, 0, 0, 5),  //
           MakeShape(17, 1, 1, 1000, 10, 1, 1, 1, 0, 0),  // linear
       }) {
    CheckAll(shape, 100 * seed++);
  }
}

// Block sizes follow the cache; sums do not.
TEST_P(Int8Conv, SameSumsWhateverTheCache) {
  for (const int64_t bytes : {int64_t{1} << 16, int64_t{1} << 18, int64_t{1} << 24}) {
    AssumeSecondLevelBytes(bytes);
    SCOPED_TRACE(absl::StrCat("cache of ", bytes, " bytes"));
    CheckAll(MakeShape(9, 16, 16, 64, 96, 3, 3, 1, 1, 1), 7);
    CheckAll(MakeShape(6, 16, 16, 70, 130, 3, 3, 2, 1, 1), 8);
    CheckAll(MakeShape(40, 1, 1, 1000, 10, 1, 1, 1, 0, 0), 9);
  }
  AssumeSecondLevelBytes(0);
}

TEST_P(Int8Conv, Depthwise) {
  uint64_t seed = 1;
  for (int64_t channels : {2, 16, 50, 129}) {
    for (int64_t stride : {1, 2, 3}) {
      CheckAll(MakeShape(3, 9, 8, channels, channels, 3, 3, stride, 1, 1, channels), seed++);
    }
    CheckAll(MakeShape(2, 7, 11, channels, channels, 5, 5, 1, 2, 2, channels), seed++);
    CheckAll(MakeShape(2, 1, 11, channels, channels, 1, 4, 2, 0, 1, channels), seed++);
  }
}

TEST_P(Int8Conv, RandomShapes) {
  const uint64_t kSeed = 20260;
  const CounterRandom random(kSeed, RandomPurpose::kTest, 1, 0);
  uint64_t draws = 0;
  const auto draw = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + random.Below(draws++, static_cast<uint32_t>(values.size())));
  };
  for (int i = 0; i < 40; ++i) {
    const int64_t kernel_h = draw({1, 1, 2, 3, 5}), kernel_w = draw({1, 2, 3, 5});
    const int64_t pad_h = draw({0, 1, 2}), pad_w = draw({0, 1, 2, 3});
    const int64_t in_h = std::max(draw({1, 2, 4, 7, 9}), kernel_h - 2 * pad_h);
    const int64_t in_w = std::max(draw({1, 2, 5, 8, 11}), kernel_w - 2 * pad_w);
    ConvShape shape = MakeShape(
        draw({1, 2, 3, 4, 6, 11}), in_h, in_w, draw({1, 3, 4, 5, 10, 20, 50, 64, 67}),
        draw({1, 3, 6, 16, 17, 50, 65, 80}), kernel_h, kernel_w, draw({1, 1, 2, 3}), pad_h, pad_w);
    SCOPED_TRACE(absl::StrCat("seed ", kSeed, " shape ", i));
    CheckAll(shape, kSeed + 10 * i);
  }
}

TEST_P(Int8Conv, ExtremeMantissas) {
  ConvCase c(MakeShape(4, 6, 6, 64, 64, 3, 3, 1, 1, 1), 7);
  for (auto* values : {&c.x, &c.w, &c.dy}) {
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] = (*values)[i] > 0 ? 127 : -127;
  }
  c.Sum();
  CheckForward(c);
  CheckInputGradient(c);
  CheckWeightGradient(c);
  for (auto* values : {&c.x, &c.w, &c.dy}) std::fill(values->begin(), values->end(), -127);
  c.Sum();
  CheckForward(c);
  CheckInputGradient(c);
  CheckWeightGradient(c);
}

// A reduction longer than int32 can hold, all products of one sign.
TEST_P(Int8Conv, WideWeightGradientPassesInt32) {
  const auto check = [&](const ConvShape& shape, int8_t x) {
    ConvCase c(shape, 8);
    std::fill(c.x.begin(), c.x.end(), x);
    std::fill(c.dy.begin(), c.dy.end(), 127);
    c.Sum();
    ASSERT_GT(std::abs(c.dw[0]), int64_t{INT32_MAX} + 1);
    CheckWide(c);
  };
  check(MakeShape(9, 128, 128, 3, 2, 1, 1, 1, 0, 0), -127);
  check(MakeShape(12, 112, 112, 64, 1, 1, 2, 1, 0, 1), 127);
  check(MakeShape(1, 370, 370, 2, 2, 1, 1, 1, 0, 0, 2), 127);
  // Even one row of outputs is more than int32 holds.
  check(MakeShape(1, 1, 160'000, 3, 3, 1, 1, 1, 0, 0, 3), 127);
}

TEST_P(Int8Conv, Gemm) {
  for (auto [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                         {7, 64, 64},
                         {64, 100, 1153},
                         {130, 17, 50},
                         {500, 70, 96}}) {
    const ConvCase c(LinearShape(m, n, k), m);
    GuardedWorkspace workspace(
        Int8WorkspaceBytes(kernels(), LinearShape(m, n, k), ConvPass::kForward, threads()));
    const Int8Context context{&kernels(), &pool_, workspace.data()};
    std::vector<int32_t> y(c.y.size(), kRubbish), packed_y(c.y.size(), kRubbish);
    int32_t largest = -1, packed_largest = -1;
    Int8ConvForward(context, LinearShape(m, n, k), c.x.data(), c.w.data(), y.data(), &largest);
    GuardedWorkspace packed(Int8PackedBytes(kernels(), n, k));
    Int8PackB(kernels(), n, k, c.w.data(), packed.data());
    Int8GemmPacked(context, m, n, k, c.x.data(), packed.data(), packed_y.data(), &packed_largest);
    EXPECT_TRUE(workspace.intact() && packed.intact());
    EXPECT_EQ(FirstDifference(y, c.y), "") << m << " " << n << " " << k;
    EXPECT_EQ(packed_y, y);
    EXPECT_EQ(largest, LargestOf(c.y));
    EXPECT_EQ(packed_largest, largest);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Int8Conv,
                         testing::Combine(testing::ValuesIn(SupportedInt8Kernels().begin(),
                                                            SupportedInt8Kernels().end()),
                                          testing::Values(1, 2)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param)->name, "_threads",
                                               std::get<1>(info.param));
                         });

}  // namespace
}  // namespace runnel::cpu::cpu_int8_conv_test
