// What a tensor on one affine grid keeps: what recipes' grids make of it.

#include "compress/grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/ir/arithmetic/affine_grid.h"
#include "kernels/ir/arithmetic/fake_quantize.h"
#include "proto/base/tensor/encoded_bytes.h"
#include "tests/compress/test_tensors.h"

namespace runnel::grid_test {
namespace {

constexpr uint64_t kSeed = 11;
const Shape kShape = {6, 7, 13};

std::vector<float> Cross(int bits, const std::vector<float>& x, const Shape& shape,
                         RandomPurpose purpose = RandomPurpose::kCodecForward,
                         int64_t sequence = 0) {
  const auto codec = MakeGridCodec(bits, BestCodecKernels());
  std::vector<std::byte> payload(static_cast<size_t>(codec->EncodedBytes(shape).value()));
  const absl::Status encoded =
      codec->NewEncoder({kSeed, purpose, 1})
          ->Encode(ViewOf(x, shape), Sequence(sequence), false, absl::MakeSpan(payload));
  EXPECT_TRUE(encoded.ok()) << encoded;
  std::vector<float> out(x.size());
  const absl::Status decoded = codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape));
  EXPECT_TRUE(decoded.ok()) << decoded;
  return out;
}

std::vector<float> Activations(const Shape& shape, float scale) {
  std::vector<float> x = NormalTensor(shape.elements(), kSeed);
  for (float& value : x) value = std::max(0.0f, value) * scale;
  return x;
}

ValueRange RangeOf(const std::vector<float>& x) {
  ValueRange range;
  for (float value : x) range.Add(value);
  return range.Normal();
}

TEST(Grid, ActivationsOfDorefaComeBackToTheBit) {
  for (int bits = 1; bits <= 8; ++bits) {
    std::vector<float> x = Activations(kShape, 0.7f);
    for (float& value : x) value = GridActivation(value, GridSteps(bits));
    const std::vector<float> out = Cross(bits, x, kShape);
    EXPECT_EQ(std::memcmp(out.data(), x.data(), 4 * x.size()), 0) << bits;
  }
}

TEST(Grid, TheEndsOfAnyRangeComeBackExactly) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const std::vector<float> x = NormalTensor(97, seed);
    const int bits = 1 + static_cast<int>(seed % 16);
    const ValueRange before = RangeOf(x), after = RangeOf(Cross(bits, x, {97}));
    EXPECT_EQ(before.low, after.low) << "seed " << seed << ", " << bits << " bits";
    EXPECT_EQ(before.high, after.high) << "seed " << seed << ", " << bits << " bits";
  }
}

TEST(Grid, AnOperatorWithGridsOfItsInputsRangeComputesTheSame) {
  for (int bits = 2; bits <= 8; ++bits) {
    for (const std::vector<float>& x : {Activations(kShape, 3), NormalTensor(546, kSeed + 1)}) {
      const std::vector<float> out = Cross(bits, x, kShape);
      const ValueRange before = RangeOf(x), after = RangeOf(out);
      EXPECT_EQ(before.low, after.low);
      EXPECT_EQ(before.high, after.high);
      const AffineGrid grid = AffineGridOf(before, bits);
      for (size_t e = 0; e < x.size(); ++e)
        ASSERT_EQ(AffineValue(x[e], grid), AffineValue(out[e], grid)) << bits << ", " << e;
    }
  }
}

// Frame header included, from a boundary of some 16 kB on.
TEST(Grid, FramesOfThreeBitsTakeLittleMore) {
  const Shape shape = {16, 6, 12, 12};
  const auto codec = MakeGridCodec(3, BestCodecKernels());
  const double bits =
      8.0 * static_cast<double>(codec->EncodedBytes(shape).value() + kFrameHeaderBytes);
  EXPECT_LE(bits / static_cast<double>(shape.elements()), 3.3);
}

TEST(Grid, GradientsHaveNoBias) {
  const Shape shape = {64};
  const std::vector<float> g = NormalTensor(64, kSeed + 2);
  const ValueRange range = RangeOf(g);
  constexpr int kDraws = 4000;
  std::vector<double> sum(g.size(), 0.0);
  for (int64_t sequence = 0; sequence < kDraws; ++sequence) {
    const std::vector<float> out = Cross(4, g, shape, RandomPurpose::kCodecBackward, sequence);
    for (size_t e = 0; e < g.size(); ++e) sum[e] += out[e];
  }
  const double tolerance = 5 * 0.5 * (range.high - range.low) / 15 / std::sqrt(kDraws);
  for (size_t e = 0; e < g.size(); ++e) EXPECT_NEAR(sum[e] / kDraws, g[e], tolerance) << e;
}

TEST(Grid, ARangeBeyondFloatsAndOneBelowThemComeBack) {
  const Shape shape = {4};
  const std::vector<float> wide = {-3e38f, 0, 1e38f, 3e38f};
  const std::vector<float> out = Cross(8, wide, shape);
  for (size_t e = 0; e < wide.size(); ++e) EXPECT_NEAR(out[e] / 1e38, wide[e] / 1e38, 0.02) << e;
  const std::vector<float> least = {0, 0x1p-149f, 0x1p-149f, 0};
  EXPECT_EQ(Cross(8, least, shape), least);
  // Levels of less than FP32's least number, and of little more than one of them.
  for (const float unit : {0x1p-149f, 0x1p-148f, 0x1p-140f}) {
    const std::vector<float> narrow = {-7 * unit, 0, 100 * unit, 376 * unit};
    const std::vector<float> back = Cross(8, narrow, shape);
    EXPECT_EQ(back.front(), narrow.front());
    EXPECT_EQ(back.back(), narrow.back());
    for (size_t e = 0; e < narrow.size(); ++e)
      EXPECT_LE(std::abs(back[e] - narrow[e]), 2 * unit) << unit << ", " << e;
  }
}

// No grid gives -0: it is the code 0 and takes no other value's exactness.
TEST(Grid, AMinusZeroIsZero) {
  const float unit = 1.0f / 7;
  const std::vector<float> out = Cross(3, {-0.0f, 2 * unit, 5 * unit, 0}, {4});
  EXPECT_EQ(out, std::vector<float>({0, 2 * unit, 5 * unit, 0}));
  EXPECT_FALSE(std::signbit(out[0]));
}

TEST(Grid, CodesOfZeroToOneHaveNoOtherRange) {
  const Shape shape = {8};
  const std::vector<float> x = {0, 1, 0, 1, 1, 0, 0, 1};
  const auto codec = MakeGridCodec(1, BestCodecKernels());
  std::vector<std::byte> payload(static_cast<size_t>(codec->EncodedBytes(shape).value()));
  ASSERT_TRUE(codec->NewEncoder({kSeed, RandomPurpose::kCodecForward, 1})
                  ->Encode(ViewOf(x, shape), Sequence(0), false, absl::MakeSpan(payload))
                  .ok());
  std::vector<float> out(x.size());
  ASSERT_EQ(payload[1], std::byte{1}) << "its kind";
  EXPECT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok());
  const auto refused = [&](size_t at, float value) {
    std::vector<std::byte> other = payload;
    std::memcpy(other.data() + at, &value, sizeof(value));
    return !codec->Decode(other, MutableViewOf(absl::MakeSpan(out), shape)).ok();
  };
  EXPECT_TRUE(refused(4, -1));
  EXPECT_TRUE(refused(4, -0.0f));
  EXPECT_TRUE(refused(8, 2));
  EXPECT_TRUE(refused(8, 0.5f));
}

}  // namespace
}  // namespace runnel::grid_test
