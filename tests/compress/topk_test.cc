#include "compress/topk/topk.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/compress/encode_decode.h"
#include "tests/compress/test_tensors.h"

namespace runnel::topk_test {
namespace {

constexpr uint64_t kSeed = 2718;
constexpr double kRatios[] = {0.001, 0.01, 0.03, 0.1, 0.5, 0.9};

int64_t SizeOf(double ratio, const Shape& shape) {
  return MakeTopkCodec(ratio, BestCodecKernels())->EncodedBytes(shape).value();
}

// The specification: places sorted by magnitude, of equal magnitudes by index.
std::vector<float> Sparsified(const std::vector<float>& x, size_t k) {
  std::vector<size_t> places(x.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::stable_sort(places.begin(), places.end(),
                   [&x](size_t a, size_t b) { return std::abs(x[a]) > std::abs(x[b]); });
  std::vector<float> kept(x.size(), 0.0f);
  for (size_t i = 0; i < k; ++i) kept[places[i]] = x[places[i]];
  return kept;
}

// Few different values: ties are everywhere.
std::vector<float> Ties(size_t n) {
  const CounterRandom random(kSeed, RandomPurpose::kTest, 2, 0);
  std::vector<float> x(n);
  for (size_t e = 0; e < n; ++e) x[e] = static_cast<float>(random.Below(e, 5)) - 2.0f;
  return x;
}

size_t Kept(double ratio, size_t n) {
  return static_cast<size_t>(std::ceil(ratio * static_cast<double>(n)));
}

TEST(Topk, SizesFollowFromTheShape) {
  // Bitmap: n / 8 bytes and k values; indices: 4 k bytes and k values.
  EXPECT_EQ(SizeOf(0.1, {1000}), 125 + 4 * 100);
  EXPECT_EQ(SizeOf(0.1, {10, 101}), 127 + 4 * 101);
  EXPECT_EQ(SizeOf(0.01, {1000}), 4 * 10 + 4 * 10);
  EXPECT_EQ(SizeOf(0.01, {1001}), 4 * 11 + 4 * 11);
  EXPECT_EQ(SizeOf(0.001, {1}), 1 + 4);
  EXPECT_EQ(SizeOf(0.9, {1}), 1 + 4);
  // Beyond 32-bit indices.
  EXPECT_EQ(SizeOf(0.5, {Shape::kMaxElements}), Shape::kMaxElements / 8 + 2 * Shape::kMaxElements);
}

TEST(Topk, KeepsTheLargestExactly) {
  for (double ratio : kRatios) {
    const auto codec = MakeTopkCodec(ratio, BestCodecKernels());
    for (size_t n : {size_t{1}, size_t{2}, size_t{7}, size_t{8}, size_t{33}, size_t{1000}}) {
      std::vector<NamedTensor> tensors = HardTensors(static_cast<int64_t>(n), kSeed);
      tensors.push_back({"ties", Ties(n)});
      for (const NamedTensor& tensor : tensors) {
        const auto encoder = codec->NewEncoder({});
        std::vector<float> out(n);
        ASSERT_TRUE(Decode(*codec, Encoded(*encoder, *codec, tensor.values), out).ok());
        const std::vector<float> expected = Sparsified(tensor.values, Kept(ratio, n));
        EXPECT_EQ(out, expected) << tensor.name << ", " << n << " elements, ratio " << ratio;
      }
    }
  }
}

TEST(Topk, TheCutIsThatOfASort) {
  std::vector<std::vector<float>> tensors = {Ties(999), std::vector<float>(999, 0.0f),
                                             std::vector<float>(999, -3.0f)};
  for (const NamedTensor& tensor : HardTensors(999, kSeed)) tensors.push_back(tensor.values);
  for (const std::vector<float>& x : tensors) {
    std::vector<uint32_t> magnitudes;
    for (float value : x) magnitudes.push_back(std::bit_cast<uint32_t>(std::abs(value)));
    std::sort(magnitudes.rbegin(), magnitudes.rend());
    for (size_t k = 1; k <= x.size(); k += k < 20 ? 1 : 97) {
      const TopkCut cut = FindTopkCut(x.data(), x.size(), k);
      EXPECT_EQ(cut.magnitude, magnitudes[k - 1]);
      const auto larger = std::count_if(magnitudes.begin(), magnitudes.end(),
                                        [&cut](uint32_t m) { return m > cut.magnitude; });
      EXPECT_EQ(cut.equal, k - static_cast<size_t>(larger));
    }
  }
}

// Whole numbers, so that sums are exact: what was sent and what is kept back is what came in.
TEST(Topk, NothingIsLost) {
  constexpr size_t kElements = 500;
  for (double ratio : {0.01, 0.1, 0.5}) {
    const auto codec = MakeTopkCodec(ratio, BestCodecKernels());
    const auto encoder = codec->NewEncoder({});
    std::vector<float> came(kElements), left(kElements), out(kElements);
    for (uint64_t sequence = 0; sequence < 30; ++sequence) {
      const CounterRandom random(kSeed, RandomPurpose::kTest, 3, sequence);
      std::vector<float> x(kElements);
      for (size_t e = 0; e < kElements; ++e) {
        x[e] = static_cast<float>(random.Below(e, 201)) - 100.0f;
        came[e] += x[e];
      }
      ASSERT_TRUE(Decode(*codec, Encoded(*encoder, *codec, x), out).ok());
      for (size_t e = 0; e < kElements; ++e) left[e] += out[e];
    }
    const std::string state = encoder->SaveState();
    ASSERT_EQ(state.size(), 12 + 4 * kElements + 8);
    for (size_t e = 0; e < kElements; ++e) {
      float residual = 0;
      std::memcpy(&residual, state.data() + 12 + 4 * e, 4);
      EXPECT_EQ(left[e] + residual, came[e]) << e;
    }
  }
}

TEST(Topk, AnEpochAndAnotherSizeBeginWithoutAResidual) {
  const auto codec = MakeTopkCodec(0.1, BestCodecKernels());
  const std::vector<float> x = NormalTensor(200, kSeed), shorter = NormalTensor(150, kSeed + 1);
  const std::vector<std::byte> fresh = Encoded(*codec->NewEncoder({}), *codec, x);
  const auto encoder = codec->NewEncoder({});
  EXPECT_EQ(Encoded(*encoder, *codec, x), fresh);
  EXPECT_NE(Encoded(*encoder, *codec, x), fresh);
  EXPECT_EQ(Encoded(*encoder, *codec, x, /*restart=*/true), fresh);
  EXPECT_EQ(Encoded(*encoder, *codec, shorter), Encoded(*codec->NewEncoder({}), *codec, shorter));
  EXPECT_EQ(Encoded(*encoder, *codec, x), fresh);
}

// What is kept back stays finite.
TEST(Topk, SumsAreHeldWithinFloats) {
  const auto codec = MakeTopkCodec(0.5, BestCodecKernels());
  const auto encoder = codec->NewEncoder({});
  const std::vector<float> x(4, std::numeric_limits<float>::max());
  std::vector<float> out(4);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Decode(*codec, Encoded(*encoder, *codec, x), out).ok());
    for (float value : out) EXPECT_TRUE(value == 0.0f || value == x[0]) << value;
  }
}

TEST(Topk, ImpossiblePayloadsAreRefused) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> out(20);
  const std::vector<float> x = NormalTensor(20, kSeed);
  const auto bitmap = MakeTopkCodec(0.3, BestCodecKernels());  // 3 bytes, 6 values
  const std::vector<std::byte> good = Encoded(*bitmap->NewEncoder({}), *bitmap, x);
  ASSERT_EQ(good.size(), 3u + 6 * 4);
  for (size_t bit = 0; bit < 24; ++bit) {  // one too many, one too few, one behind the tensor
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(Decode(*bitmap, bad, out).ok()) << bit;
  }
  for (size_t i = 0; i < 6; ++i) {
    for (float value : {kNan, kInfinity, -kInfinity}) {
      std::vector<std::byte> bad = good;
      std::memcpy(&bad[3 + 4 * i], &value, 4);
      EXPECT_FALSE(Decode(*bitmap, bad, out).ok()) << i;
    }
  }
  out.resize(1000);
  const auto indices = MakeTopkCodec(0.002, BestCodecKernels());  // 2 indices, 2 values
  const auto payload = [](uint32_t first, uint32_t second, float value) {
    std::vector<std::byte> bytes(16);
    std::memcpy(&bytes[0], &first, 4);
    std::memcpy(&bytes[4], &second, 4);
    std::memcpy(&bytes[12], &value, 4);
    return bytes;
  };
  EXPECT_TRUE(Decode(*indices, payload(0, 999, -1), out).ok());
  EXPECT_EQ(out[999], -1);
  EXPECT_FALSE(Decode(*indices, payload(0, 1000, 1), out).ok());
  EXPECT_FALSE(Decode(*indices, payload(0, 0xFFFFFFFF, 1), out).ok());
  EXPECT_FALSE(Decode(*indices, payload(5, 5, 1), out).ok());
  EXPECT_FALSE(Decode(*indices, payload(5, 4, 1), out).ok());
  EXPECT_FALSE(Decode(*indices, payload(0, 999, kNan), out).ok());
}

}  // namespace
}  // namespace runnel::topk_test
