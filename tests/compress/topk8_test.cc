// topk8: 8-bit values and coded places.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/topk/place_coder.h"
#include "compress/topk/topk.h"
#include "gtest/gtest.h"
#include "tests/compress/encode_decode.h"
#include "tests/compress/guarded_buffer.h"
#include "tests/compress/test_tensors.h"

namespace runnel::topk8_test {
namespace {

constexpr uint64_t kSeed = 161803;

// Bits that the choice of k of n places has.
double EntropyBits(size_t n, size_t k) {
  const auto log_factorial = [](size_t m) { return std::lgamma(static_cast<double>(m) + 1); };
  return (log_factorial(n) - log_factorial(k) - log_factorial(n - k)) / std::log(2.0);
}

// Choices that are as unlike as can be: at one end, in the middle, every so often, at random.
std::vector<std::vector<bool>> Choices(size_t n, size_t k) {
  std::vector<std::vector<bool>> all(4, std::vector<bool>(n, false));
  for (size_t i = 0; i < k; ++i) {
    all[0][i] = true;
    all[1][n - 1 - i] = true;
    all[2][i * n / k] = true;
  }
  const CounterRandom random(kSeed, RandomPurpose::kTest, n, k);
  size_t left = k;
  for (size_t e = 0; e < n; ++e) {
    all[3][e] = random.Uniform(e) * static_cast<double>(n - e) < static_cast<double>(left);
    left -= all[3][e] ? 1 : 0;
  }
  if (left > 0) all.pop_back();  // the float's last place
  return all;
}

TEST(PlaceCoder, AnyChoiceComesBackWithinItsBytes) {
  for (size_t n : {1u, 2u, 3u, 9u, 64u, 1000u, 30'000u}) {
    for (size_t k : {size_t{1}, n / 1000, n / 100, n / 10, n / 5, n / 4, n / 2, n - n / 10, n}) {
      if (k == 0) continue;
      SCOPED_TRACE(absl::StrCat(k, " of ", n));
      GuardedBuffer bytes(PlaceBytes(n, k), Guard::kAfter);
      EXPECT_LE(8.0 * PlaceBytes(n, k), 1.01 * EntropyBits(n, k) + 32 + 2 * std::log2(n + 1));
      for (const std::vector<bool>& choice : Choices(n, k)) {
        PlaceWriter writer(n, k, bytes.bytes().data());
        for (bool chosen : choice) writer.Write(chosen);
        writer.Finish();
        PlaceReader reader(n, k, bytes.bytes().data());
        for (size_t e = 0; e < n; ++e) ASSERT_EQ(reader.Read(), choice[e]) << e;
        EXPECT_TRUE(reader.IsAtEnd());
      }
    }
  }
}

// Words of ones carry into each other.
TEST(PlaceCoder, CarriesRunThroughAllWords) {
  constexpr size_t kElements = 4096, kChosen = kElements / 2;
  std::vector<std::byte> bytes(PlaceBytes(kElements, kChosen));
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const CounterRandom random(kSeed, RandomPurpose::kTest, seed, 1);
    // A long run of the upper half, then what decides whether it carries.
    std::vector<bool> choice(kElements, true);
    size_t chosen = kElements;
    for (size_t e = kElements; e-- > 0 && chosen > kChosen;) {
      const bool drop = e < kElements - 1500 || random.Below(e, 2) == 0;
      if (!drop || e < 30 + seed) continue;
      choice[e] = false;
      --chosen;
    }
    ASSERT_EQ(chosen, kChosen);
    PlaceWriter writer(kElements, kChosen, bytes.data());
    for (bool one : choice) writer.Write(one);
    writer.Finish();
    PlaceReader reader(kElements, kChosen, bytes.data());
    for (size_t e = 0; e < kElements; ++e) ASSERT_EQ(reader.Read(), choice[e]) << e;
  }
}

class Topk8 : public testing::Test {
 protected:
  static std::unique_ptr<const Codec> Make(double ratio) {
    return MakeTopk8Codec(ratio, BestCodecKernels());
  }
};

TEST_F(Topk8, BytesAreThoseOfTheEntropy) {
  constexpr double kElements = 1 << 20;
  for (double ratio : {0.001, 0.003, 0.01, 0.03, 0.1, 0.15, 0.25, 0.5, 0.9}) {
    const double bits = 8.0 * Make(ratio)->EncodedBytes({1 << 20}).value() / kElements;
    EXPECT_GE(bits, Topk8Bits(ratio)) << ratio;
    EXPECT_LE(bits, 1.01 * Topk8Bits(ratio) + 0.0003) << ratio;
  }
  EXPECT_LT(8.0 * Make(0.1)->EncodedBytes({1 << 20}).value() / kElements, 1.28);
}

// The same elements as topk, and each within a step of what it is.
TEST_F(Topk8, KeepsTheLargestInEightBits) {
  for (double ratio : {0.001, 0.1, 0.5}) {
    for (size_t n : {1u, 8u, 100u, 1000u}) {
      for (const NamedTensor& tensor : HardTensors(n, kSeed)) {
        SCOPED_TRACE(absl::StrCat(tensor.name, ", ", n, " elements, ratio ", ratio));
        const auto codec = Make(ratio), exact = MakeTopkCodec(ratio, BestCodecKernels());
        std::vector<float> out(n), kept(n);
        ASSERT_TRUE(
            Decode(*codec, Encoded(*codec->NewEncoder({}), *codec, tensor.values), out).ok());
        ASSERT_TRUE(
            Decode(*exact, Encoded(*exact->NewEncoder({}), *exact, tensor.values), kept).ok());
        float most = 0;
        for (float value : kept) most = std::max(most, std::abs(value));
        for (size_t e = 0; e < n; ++e) {
          const float magnitude = std::abs(kept[e]);
          if (magnitude < most * 0x1p-20f) {
            EXPECT_LE(std::abs(out[e]), most * 0x1p-19f) << e;
            continue;
          }
          EXPECT_NEAR(out[e], kept[e], 0.09 * magnitude + 0x1p-130) << e;
          if (magnitude == most) {
            EXPECT_EQ(out[e], kept[e]) << e;
          }
        }
      }
    }
  }
}

TEST_F(Topk8, NormalValuesLoseLittleByTheirEightBits) {
  const std::vector<float> x = NormalTensor(100'000, kSeed);
  for (double ratio : {0.01, 0.1, 0.5}) {
    const auto codec = Make(ratio);
    std::vector<float> out(x.size());
    ASSERT_TRUE(Decode(*codec, Encoded(*codec->NewEncoder({}), *codec, x), out).ok());
    double error = 0, power = 0;
    for (size_t e = 0; e < x.size(); ++e) {
      if (out[e] == 0) continue;
      error += std::pow(double{out[e]} - x[e], 2);
      power += std::pow(double{x[e]}, 2);
    }
    EXPECT_LT(error, 5e-5 * power) << ratio;
  }
}

// What came in is what was sent and what is kept back, but for the rounding of sums.
TEST_F(Topk8, NothingIsLost) {
  constexpr size_t kElements = 500;
  for (double ratio : {0.01, 0.1, 0.5}) {
    const auto codec = Make(ratio);
    const auto encoder = codec->NewEncoder({});
    std::vector<double> owed(kElements);
    std::vector<float> out(kElements);
    for (uint64_t sequence = 0; sequence < 60; ++sequence) {
      const std::vector<float> x = NormalTensor(kElements, kSeed + sequence);
      ASSERT_TRUE(Decode(*codec, Encoded(*encoder, *codec, x), out).ok());
      for (size_t e = 0; e < kElements; ++e) owed[e] += double{x[e]} - out[e];
    }
    const std::string state = encoder->SaveState();
    ASSERT_EQ(state.size(), 12 + 4 * kElements + 8);
    for (size_t e = 0; e < kElements; ++e) {
      float residual = 0;
      std::memcpy(&residual, state.data() + 12 + 4 * e, 4);
      EXPECT_NEAR(residual, owed[e], 1e-4) << e;
    }
    // A state of topk's is none of topk8's.
    EXPECT_FALSE(
        MakeTopkCodec(ratio, BestCodecKernels())->NewEncoder({})->RestoreState(state).ok());
  }
}

// More is to be kept than there is.
TEST_F(Topk8, ZerosAmongTheKeptStayZeros) {
  std::vector<float> x(200, 0.0f), out(200, 1.0f);
  x[7] = -3.0f;
  x[100] = 0.25f;
  const auto codec = Make(0.5);
  ASSERT_TRUE(Decode(*codec, Encoded(*codec->NewEncoder({}), *codec, x), out).ok());
  for (size_t e = 0; e < x.size(); ++e) {
    EXPECT_NEAR(out[e], x[e], 0.09 * std::abs(x[e])) << e;
    EXPECT_FALSE(out[e] == 0 && std::signbit(out[e])) << e;
  }
}

TEST_F(Topk8, ImpossiblePayloadsAreRefused) {
  const auto codec = Make(0.1);
  std::vector<float> out(200);
  const std::vector<std::byte> good =
      Encoded(*codec->NewEncoder({}), *codec, NormalTensor(200, kSeed));
  ASSERT_TRUE(Decode(*codec, good, out).ok());
  const auto with_float = [&good](size_t at, uint32_t bits) {
    std::vector<std::byte> payload = good;
    std::memcpy(payload.data() + at, &bits, 4);
    return payload;
  };
  for (size_t at : {0u, 4u}) {
    for (uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0x80000000u, 0xBF800000u}) {
      EXPECT_FALSE(Decode(*codec, with_float(at, bits), out).ok()) << at << ", " << bits;
    }
  }
  EXPECT_FALSE(Decode(*codec, with_float(0, 0x7F000000u), out).ok());  // low above high
  EXPECT_FALSE(Decode(*codec, with_float(0, 0), out).ok());
  EXPECT_FALSE(Decode(*codec, with_float(4, 0), out).ok());
  std::vector<std::byte> bad = good;
  bad[8] = std::byte{128};  // minus zero
  EXPECT_FALSE(Decode(*codec, bad, out).ok());
  // All zeros with a value that is none.
  const std::vector<std::byte> zeros =
      Encoded(*codec->NewEncoder({}), *codec, std::vector<float>(200, 0.0f));
  ASSERT_TRUE(Decode(*codec, zeros, out).ok());
  bad = zeros;
  bad[8] = std::byte{1};
  EXPECT_FALSE(Decode(*codec, bad, out).ok());
  // Places: all ones stand for too many, all zeros for too few, and the end must be one.
  for (std::byte fill : {std::byte{0x00}, std::byte{0xFF}}) {
    bad = good;
    std::fill(bad.begin() + 8 + 20, bad.end(), fill);
    EXPECT_FALSE(Decode(*codec, bad, out).ok());
  }
}

}  // namespace
}  // namespace runnel::topk8_test
