#include "compress/lowrank.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::lowrank_test {
namespace {

constexpr uint64_t kSeed = 20190531;
constexpr EncoderKey kKey = {3, RandomPurpose::kCodecForward, 2};

std::vector<std::byte> Encoded(Encoder& encoder, const Codec& codec, const std::vector<float>& x,
                               const Shape& shape, int64_t sequence) {
  std::vector<std::byte> payload(static_cast<size_t>(codec.EncodedBytes(shape).value()));
  const absl::Status status =
      encoder.Encode(ViewOf(x, shape), Sequence(sequence), sequence == 0, absl::MakeSpan(payload));
  EXPECT_TRUE(status.ok()) << status;
  return payload;
}

std::vector<float> Decoded(const Codec& codec, const std::vector<std::byte>& payload,
                           const Shape& shape) {
  std::vector<float> out(static_cast<size_t>(shape.elements()));
  EXPECT_TRUE(codec.Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok());
  return out;
}

double RelativeError(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, power = 0;
  for (size_t e = 0; e < x.size(); ++e) {
    error += std::pow(double{x[e]} - y[e], 2);
    power += std::pow(double{x[e]}, 2);
  }
  return error / power;
}

// rows x columns of rank `rank`, with singular values that fall by half, plus noise. The columns'
// directions are the same for every `stream`, as the features of successive batches are.
std::vector<float> Matrix(size_t rows, size_t columns, size_t rank, double noise, uint64_t stream) {
  const std::vector<float> left = NormalTensor(rows * rank, kSeed + stream);
  const std::vector<float> right = NormalTensor(columns * rank, kSeed);
  std::vector<float> m = NormalTensor(rows * columns, kSeed + 100 + stream, noise);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < columns; ++k) {
      for (size_t j = 0; j < rank; ++j) {
        m[i * columns + k] += static_cast<float>(
            std::ldexp(double{left[i * rank + j]} * right[k * rank + j], -static_cast<int>(j)));
      }
    }
  }
  return m;
}

TEST(Lowrank, ATensorOfThatRankComesBack) {
  for (int rank : {1, 2, 4, 8}) {
    const auto codec = MakeLowrankCodec(rank);
    const Shape shape = {64, 300};
    const std::vector<float> x = Matrix(64, 300, static_cast<size_t>(rank), 0, 1);
    const auto encoder = codec->NewEncoder(kKey);
    EXPECT_LT(RelativeError(x, Decoded(*codec, Encoded(*encoder, *codec, x, shape, 0), shape)),
              1e-11)
        << rank;
  }
}

// Subspace iteration from the last micro-batch's Q comes near to the best approximation, whose
// error is that of the noise: (rows - R)(columns - R) of rows x columns values.
TEST(Lowrank, WarmStartsComeNearToTheBest) {
  constexpr size_t kRows = 64, kColumns = 300, kRank = 4;
  const Shape shape = {kRows, kColumns};
  const auto codec = MakeLowrankCodec(kRank);
  const auto encoder = codec->NewEncoder(kKey);
  for (int64_t sequence = 0; sequence < 20; ++sequence) {
    constexpr double kNoise = 0.05;
    const std::vector<float> x =
        Matrix(kRows, kColumns, kRank, kNoise, static_cast<uint64_t>(sequence));
    const std::vector<float> out =
        Decoded(*codec, Encoded(*encoder, *codec, x, shape, sequence), shape);
    double power = 0;
    for (float value : x) power += double{value} * value;
    const double best = kNoise * kNoise * (kRows - kRank) * (kColumns - kRank) / power;
    EXPECT_LT(RelativeError(x, out), 1.15 * best) << sequence;
  }
}

// A column that nothing needed begins anew where something does.
TEST(Lowrank, LostColumnsComeBack) {
  const Shape shape = {32, 100};
  const auto codec = MakeLowrankCodec(2);
  const auto encoder = codec->NewEncoder(kKey);
  Encoded(*encoder, *codec, Matrix(32, 100, 1, 0, 1), shape, 0);
  const std::vector<float> x = Matrix(32, 100, 2, 0, 2);
  std::vector<float> out;
  for (int64_t sequence = 1; sequence < 6; ++sequence) {
    out = Decoded(*codec, Encoded(*encoder, *codec, x, shape, sequence), shape);
  }
  EXPECT_LT(RelativeError(x, out), 1e-9);
}

TEST(Lowrank, SizesAndRanksAreKnown) {
  const auto bytes = [](int rank, const Shape& shape) {
    return MakeLowrankCodec(rank)->EncodedBytes(shape).value();
  };
  EXPECT_EQ(bytes(4, {64, 400}), 4 * 4 * (64 + 400));
  EXPECT_EQ(bytes(4, {8, 16, 400}), 4 * 4 * (128 + 400));
  EXPECT_EQ(bytes(4, {64, 32, 16, 16}), 4 * 4 * (2048 + 256));
  EXPECT_EQ(bytes(4, {3, 400}), 4 * 3 * 400);  // held to 3, and then fewer as it is
  EXPECT_EQ(bytes(64, {64, 400}), 4 * 64 * 400);
  EXPECT_EQ(bytes(1, {1}), 4);
  EXPECT_EQ(LargestRank({64, 400}), 64);
  EXPECT_EQ(LargestRank({64, 32, 16, 16}), 256);
  EXPECT_EQ(LargestRank({64, 10}), 10);
}

TEST(Lowrank, ImpossiblePayloadsAreRefused) {
  const Shape shape = {6, 9};
  const auto codec = MakeLowrankCodec(2);
  const std::vector<std::byte> good =
      Encoded(*codec->NewEncoder(kKey), *codec, NormalTensor(54, kSeed), shape, 0);
  std::vector<float> out(54);
  for (size_t i = 0; i < good.size() / 4; ++i) {
    for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      std::vector<std::byte> payload = good;
      std::memcpy(payload.data() + 4 * i, &bad, 4);
      EXPECT_FALSE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok()) << i;
    }
  }
  // Products beyond FP32 are held within it.
  std::vector<std::byte> payload = good;
  const float most = 3e38f;
  for (size_t i = 0; i < good.size() / 4; ++i) std::memcpy(payload.data() + 4 * i, &most, 4);
  ASSERT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok());
  for (float value : out) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace runnel::lowrank_test
