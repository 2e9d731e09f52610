// Rounding to mantissas, largest magnitudes and the saturating update of every instruction set,
// against the scalar rules of integer_math.h; and the thread pool.

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/ir/arithmetic/integer_math.h"
#include "tests/kernels/cpu/cpu_int8_harness.h"

namespace runnel::cpu::cpu_int8_elements_test {
namespace {

class Int8Elements : public testing::TestWithParam<const Int8Kernels*> {
 protected:
  const Int8Kernels& kernels() const { return *GetParam(); }

  // One call of each rounding, with guards behind the output.
  void CheckRescale(const std::vector<int32_t>& acc, int shift, bool relu, const int8_t* mask) {
    for (bool half_away : {false, true}) {
      std::vector<int8_t> out(acc.size() + 64, 99);
      (half_away ? kernels().rescale_half_away : kernels().rescale_pseudo_stochastic)(
          acc.data(), static_cast<int64_t>(acc.size()), shift, relu, mask, out.data());
      for (size_t i = 0; i < acc.size(); ++i) {
        int64_t value = acc[i];
        if (shift > 0) {
          value = half_away ? RoundHalfAway(value, shift) : RoundPseudoStochastic(value, shift);
        }
        int expected = SaturateMantissa(value);
        if ((relu && expected < 0) || (mask != nullptr && mask[i] <= 0)) expected = 0;
        ASSERT_EQ(out[i], expected) << "x " << acc[i] << " shift " << shift << " half away "
                                    << half_away << " relu " << relu << " masked " << !!mask;
      }
      ASSERT_EQ(out[acc.size()], 99);
    }
  }
};

TEST_P(Int8Elements, EverySmallAccumulator) {
  std::vector<int32_t> acc;
  for (int32_t x = -(1 << 16); x <= 1 << 16; ++x) acc.push_back(x);
  for (int shift = 0; shift <= 14; ++shift) CheckRescale(acc, shift, false, nullptr);
}

TEST_P(Int8Elements, WholeRangeOfAccumulators) {
  const CounterRandom random(5, RandomPurpose::kTest, 0, 0);
  std::vector<int32_t> acc = {std::numeric_limits<int32_t>::max(),
                              -std::numeric_limits<int32_t>::max(), 0, 1, -1};
  for (int i = 0; i < 5000; ++i) {
    acc.push_back(static_cast<int32_t>(random.Bits(i)) >> random.Below(10000 + i, 31));
  }
  const std::vector<int8_t> mask = RandomMantissas(static_cast<int64_t>(acc.size()), 6);
  for (int shift = 0; shift <= 31; ++shift) {
    for (bool relu : {false, true}) {
      CheckRescale(acc, shift, relu, nullptr);
      CheckRescale(acc, shift, relu, mask.data());
    }
  }
}

TEST_P(Int8Elements, AnyLength) {
  const std::vector<int8_t> mask = RandomMantissas(200, 7), other = RandomMantissas(200, 8);
  for (size_t n = 0; n < 140; ++n) {
    std::vector<int32_t> acc(n);
    for (size_t i = 0; i < n; ++i) acc[i] = mask[i] * 1000 * other[i];
    CheckRescale(acc, 9, true, mask.data() + 1);
    const auto count = static_cast<int64_t>(n);
    EXPECT_EQ(kernels().max_abs(acc.data(), count), LargestOf(acc)) << n;
    std::vector<int8_t> out(n + 64, 99);
    kernels().subtract_saturating(mask.data(), other.data(), count, out.data());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(out[i], SaturateMantissa(int64_t{mask[i]} - other[i])) << n;
    }
    ASSERT_EQ(out[n], 99);
  }
}

// Values that NITI's own code and Mandheling's give, for both ways of rounding.
TEST_P(Int8Elements, ValuesOfTheSpecification) {
  const auto rescale = [&](auto function, std::vector<int32_t> acc, int shift) {
    std::vector<int8_t> out(acc.size());
    function(acc.data(), static_cast<int64_t>(acc.size()), shift, false, nullptr, out.data());
    return std::vector<int>(out.begin(), out.end());
  };
  const std::vector<int32_t> list = {5, 6, 8, 10, 11, 15, 16, 23, 24, -5, -8, -10, -11, -15, -24};
  EXPECT_THAT(rescale(kernels().rescale_pseudo_stochastic, list, 4),
              testing::ElementsAre(0, 0, 1, 0, 0, 0, 1, 1, 2, 0, -1, 0, 0, 0, -2));
  EXPECT_THAT(rescale(kernels().rescale_half_away, list, 4),
              testing::ElementsAre(0, 0, 1, 1, 1, 1, 1, 1, 2, 0, -1, -1, -1, -1, -2));
  EXPECT_THAT(rescale(kernels().rescale_pseudo_stochastic, {1, 3, -1, -3}, 1),
              testing::ElementsAre(1, 2, -1, -2));
  EXPECT_THAT(rescale(kernels().rescale_pseudo_stochastic,
                      {7, 9, 12, 16, 17, 20, 24, 31, -9, -16, -20, -31}, 5),
              testing::ElementsAre(0, 0, 1, 1, 1, 1, 1, 1, 0, -1, -1, -1));
}

INSTANTIATE_TEST_SUITE_P(Rows, Int8Elements,
                         testing::ValuesIn(SupportedInt8Kernels().begin(),
                                           SupportedInt8Kernels().end()),
                         [](const auto& info) { return info.param->name; });

TEST(ThreadPool, EveryItemOnceAndSeen) {
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t items : {0, 1, 2, 7, 500}) {
      for (int round = 0; round < 50; ++round) {
        std::vector<int> seen(static_cast<size_t>(items), 0);  // not atomic: one thread an item
        std::vector<int64_t> by_thread(static_cast<size_t>(threads), 0);  // likewise
        pool.ParallelFor(items, [&](int thread, int64_t i) {
          ++seen[static_cast<size_t>(i)];
          ++by_thread[static_cast<size_t>(thread)];
        });
        EXPECT_THAT(seen, testing::Each(1)) << threads << " threads, " << items << " items";
        EXPECT_EQ(std::accumulate(by_thread.begin(), by_thread.end(), int64_t{0}), items);
      }
    }
  }
}

// Whoever is free takes the next item: the others do them all while one thread is held up.
TEST(ThreadPool, ItemsAreNotDividedBeforehand) {
  constexpr int64_t kItems = 100;
  ThreadPool pool(2);
  std::atomic<int64_t> done = 0;
  pool.ParallelFor(kItems, [&](int, int64_t i) {
    if (i == 0) {
      while (done < kItems - 1) std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_EQ(done, kItems);
}

}  // namespace
}  // namespace runnel::cpu::cpu_int8_elements_test
