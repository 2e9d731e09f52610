// The tile codecs against their definition, written out slowly in double, and what is known of
// their errors.

#include "compress/tile/tile.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/kernels/tile_kernels.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::tile_test {
namespace {

constexpr uint64_t kSeed = 20261121;
using Payload = std::vector<std::byte>;

float Bfloat16At(const std::byte* from) {
  return std::bit_cast<float>(std::to_integer<uint32_t>(from[0]) << 16 |
                              std::to_integer<uint32_t>(from[1]) << 24);
}

// +1 or -1: row i, column j of the Hadamard matrix.
double Hadamard(size_t i, size_t j) { return std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0; }

// One tile of a payload, taken apart bit by bit.
struct TileParts {
  double centre, step;
  std::vector<int> codes;
  std::vector<double> signs;
};

TileParts Take(const std::byte* tile, size_t index, size_t width, const TileCoding& coding) {
  TileParts parts{Bfloat16At(tile), Bfloat16At(tile + 2), std::vector<int>(width),
                  std::vector<double>(width, 1.0)};
  for (size_t i = 0; i < width; ++i) {
    for (int bit = 0; bit < coding.bits; ++bit) {
      const std::byte byte = tile[4 + width / 8 * bit + i / 8];
      parts.codes[i] = 2 * parts.codes[i] + (std::to_integer<int>(byte) >> i % 8 & 1);
    }
    if (!coding.rotate) continue;
    const auto words = Philox4x32<7>(
        {static_cast<uint32_t>(index), static_cast<uint32_t>(i / 128), 0, 0}, coding.sign_key);
    if (words[i / 32 % 4] >> i % 32 & 1) parts.signs[i] = -1.0;
  }
  return parts;
}

std::vector<double> Coefficients(const float* x, size_t count, const TileParts& parts,
                                 bool rotate) {
  const size_t width = parts.codes.size();
  std::vector<double> y(width), deviation(width);
  for (size_t i = 0; i < count; ++i) deviation[i] = parts.signs[i] * (x[i] - parts.centre);
  if (!rotate) return deviation;
  const double scale = std::ldexp(1.0, -(std::countr_zero(width) / 2));
  for (size_t i = 0; i < width; ++i) {
    for (size_t j = 0; j < width; ++j) y[i] += Hadamard(i, j) * deviation[j];
    y[i] *= scale;
  }
  return y;
}

double ValueOf(const TileParts& parts, size_t e, int bits, bool rotate) {
  const double middle = ((1 << bits) - 1) / 2.0;
  if (!rotate) return parts.centre + (parts.codes[e] - middle) * parts.step;
  const size_t width = parts.codes.size();
  double sum = 0;
  for (size_t i = 0; i < width; ++i) sum += Hadamard(e, i) * (parts.codes[i] - middle);
  const double scale = std::ldexp(1.0, -((std::countr_zero(width) + 1) / 2));
  return parts.centre + parts.signs[e] * sum * parts.step * scale;
}

// Codes are the nearest ones (or, rounded at random, a neighbour), and decoding gives what they
// stand for.
void CompareTile(const float* x, const float* out, size_t count, const TileParts& parts,
                 const TileCoding& coding, bool stochastic) {
  const double middle = ((1 << coding.bits) - 1) / 2.0;
  const std::vector<double> y = Coefficients(x, count, parts, coding.rotate);
  double most = 0;
  for (double value : y) most = std::max(most, std::abs(value));
  for (size_t i = 0; i < y.size() && parts.step > 0; ++i) {
    const double held = std::clamp(y[i] / parts.step + middle, 0.0, 2 * middle);
    const double slack = 1e-4 + 1e-6 * most / parts.step;
    ASSERT_LE(std::abs(parts.codes[i] - held), (stochastic ? 1.0 : 0.5) + slack) << "code " << i;
  }
  for (size_t e = 0; e < count; ++e) {
    const double value = ValueOf(parts, e, coding.bits, coding.rotate);
    ASSERT_NEAR(out[e], value, 1e-5 * (std::abs(value) + 16 * parts.step * middle)) << e;
  }
}

TEST(Tile, IsItsDefinition) {
  for (size_t n : {1u, 3u, 8u, 9u, 31u, 33u, 100u, 256u, 257u, 500u, 1000u}) {
    for (const NamedTensor& tensor : HardTensors(n, kSeed + n)) {
      if (tensor.name == "huge") continue;  // above 2^100
      for (int bits : {2, 3, 5, 8}) {
        for (bool rotate : {false, true}) {
          for (bool stochastic : {false, true}) {
            SCOPED_TRACE(absl::StrCat(tensor.name, ", n ", n, ", bits ", bits, rotate ? " r" : "",
                                      stochastic ? " s" : ""));
            const TileCoding coding{bits, rotate, {17, 4}};
            const CounterRandom random(kSeed, RandomPurpose::kCodecBackward, 2, n);
            Payload payload(n / 256 * TileBytes(256, bits) + TileBytes(256, bits));
            std::vector<float> out(n);
            const TileKernels& kernels = kScalarTileKernels;
            kernels.encode(tensor.values.data(), n, coding, stochastic ? &random : nullptr,
                           payload.data());
            kernels.decode(payload.data(), n, coding, out.data());
            for (size_t tile = 0; tile * 256 < n; ++tile) {
              const size_t left = n - tile * 256;
              const TileParts parts =
                  Take(payload.data() + tile * TileBytes(256, bits), tile, TileWidth(left), coding);
              CompareTile(tensor.values.data() + tile * 256, out.data() + tile * 256,
                          std::min<size_t>(left, 256), parts, coding, stochastic);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

// One crossing of a direction's first micro-batch.
std::vector<float> Crossed(const std::string& name, RandomPurpose purpose,
                           const std::vector<float>& x, int64_t sequence) {
  const auto codec = MakeCodec(name).value();
  const Shape shape = {static_cast<int64_t>(x.size())};
  Payload payload(static_cast<size_t>(codec->EncodedBytes(shape).value()));
  std::vector<float> out(x.size());
  const auto encoder = codec->NewEncoder({kSeed, purpose, 5});
  EXPECT_TRUE(
      encoder->Encode(ViewOf(x, shape), Sequence(sequence), true, absl::MakeSpan(payload)).ok());
  EXPECT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok());
  return out;
}

double MeanSquaredError(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (size_t e = 0; e < x.size(); ++e) sum += std::pow(double{x[e]} - y[e], 2);
  return sum / static_cast<double>(x.size());
}

// J. Max (1960), table II: the error of the best uniform quantizer of a normal value. Rotation
// makes any tensor look like one; a tile without large values takes a smaller step.
TEST(Tile, RotatedActivationsHaveAtMostTheNormalsError) {
  const std::pair<int, double> kErrors[] = {{2, 0.1188}, {3, 0.03744}, {4, 0.01154}, {5, 0.003495}};
  const std::vector<float> normal = NormalTensor(1 << 16, kSeed);
  std::vector<float> spikes(1 << 16);
  for (size_t e = 0; e < spikes.size(); e += 16) spikes[e] = normal[e] * 4;  // variance 1 too
  for (const auto& [bits, error] : kErrors) {
    const std::string name = absl::StrCat("hadamard:", bits);
    for (const std::vector<float>& x : {normal, spikes}) {
      const auto out = Crossed(name, RandomPurpose::kCodecForward, x, 0);
      EXPECT_LT(MeanSquaredError(x, out), 1.02 * error) << name;
    }
  }
}

TEST(Tile, GradientsArriveWithoutBias) {
  const std::vector<float> x = NormalTensor(300, kSeed + 1);
  for (const std::string name : {"tile:2", "tile:4", "hadamard:2", "hadamard:4"}) {
    constexpr int kDraws = 2000;
    std::vector<double> mean(x.size());
    double squares = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto out = Crossed(name, RandomPurpose::kCodecBackward, x, draw);
      for (size_t e = 0; e < x.size(); ++e) mean[e] += out[e] / double{kDraws};
      squares += MeanSquaredError(x, out) / kDraws;
    }
    // Five deviations of the mean of so many draws.
    for (size_t e = 0; e < x.size(); ++e)
      EXPECT_NEAR(mean[e], x[e], 5 * std::sqrt(2 * squares / kDraws)) << name << ", " << e;
  }
}

// How much of x arrives: the mean over the draws of <x, out> / <x, x>.
double Gain(const std::string& name, RandomPurpose purpose, const std::vector<float>& x) {
  constexpr int kDraws = 400;
  double product = 0, square = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const auto out = Crossed(name, purpose, x, draw);
    for (size_t e = 0; e < x.size(); ++e) {
      product += double{x[e]} * out[e];
      square += double{x[e]} * x[e];
    }
  }
  return product / square;
}

TEST(Tile, EdenArrivesWithoutBiasWhereHadamardShrinks) {
  for (size_t n : {256u, 300u, 5u}) {
    // Without a mean, which both send as it is.
    std::vector<float> x = NormalTensor(n, kSeed + 3);
    for (size_t e = 1; e < n; e += 2) x[e] = -x[e - 1];
    for (RandomPurpose purpose : {RandomPurpose::kCodecForward, RandomPurpose::kCodecBackward}) {
      for (int bits : {2, 3, 4}) {
        EXPECT_NEAR(Gain(absl::StrCat("eden:", bits), purpose, x), 1, 0.003) << bits << ", " << n;
      }
    }
  }
  const std::vector<float> x = NormalTensor(1024, kSeed + 3);
  EXPECT_LT(Gain("hadamard:2", RandomPurpose::kCodecForward, x), 0.9);
}

// By element, over the signs that the encoder draws. An outlier makes a tile's rotated values less
// normal: it arrives a little too large.
TEST(Tile, EdenHasNearlyNoBiasOfAnElement) {
  for (float outlier : {0.0f, 9.0f}) {
    std::vector<float> x = NormalTensor(256, kSeed + 4);
    if (outlier != 0) x[17] = outlier;
    for (float& value : x) value = std::max(0.0f, value) + 2.0f;
    constexpr int kDraws = 4000;
    std::vector<double> mean(x.size());
    double squares = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto out = Crossed("eden:2", RandomPurpose::kCodecForward, x, draw);
      for (size_t e = 0; e < x.size(); ++e) mean[e] += out[e] / double{kDraws};
      squares += MeanSquaredError(x, out) / kDraws;
    }
    for (size_t e = 0; e < x.size(); ++e) {
      EXPECT_NEAR(mean[e], x[e], 0.05 * outlier + 5 * std::sqrt(2 * squares / kDraws)) << e;
    }
  }
}

// Steps that the encoder raises are steps that the decoder takes.
TEST(Tile, EdenOfTheLargestTilesIsDecoded) {
  for (float most : {0x1p100f, 0x1p127f, 0x1p-99f, 0x1p-149f}) {
    std::vector<float> x(300, 0.0f);
    x[3] = most;
    x[290] = -most;
    for (int bits : {2, 4, 8}) {
      for (float value : Crossed(absl::StrCat("eden:", bits), RandomPurpose::kCodecForward, x, 0)) {
        EXPECT_TRUE(std::isfinite(value));
      }
    }
  }
}

// What has arrived so far differs from what was sent so far by the last error only.
TEST(Tile, FeedbackLosesNothingOverTime) {
  const auto codec = MakeCodec("hadamard_ef:2").value();
  const Shape shape = {300};
  for (RandomPurpose purpose : {RandomPurpose::kCodecForward, RandomPurpose::kCodecBackward}) {
    const auto encoder = codec->NewEncoder({kSeed, purpose, 5});
    std::vector<double> owed(300);
    const std::vector<float> x = NormalTensor(300, kSeed + 2);
    for (int64_t step = 0; step < 200; ++step) {
      Payload payload(static_cast<size_t>(codec->EncodedBytes(shape).value()));
      std::vector<float> out(300);
      ASSERT_TRUE(
          encoder->Encode(ViewOf(x, shape), Sequence(step), step == 0, absl::MakeSpan(payload))
              .ok());
      ASSERT_TRUE(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok());
      for (size_t e = 0; e < x.size(); ++e) owed[e] += double{x[e]} - out[e];
    }
    for (double debt : owed) EXPECT_LT(std::abs(debt), 8.0);  // 200 x the error of one would be 60
  }
}

TEST(Tile, SizesAreKnown) {
  const auto bytes = [](const std::string& name, int64_t n) {
    return MakeCodec(name).value()->EncodedBytes({n}).value();
  };
  EXPECT_EQ(bytes("tile:2", 256), 4 + 64);
  EXPECT_EQ(bytes("hadamard:2", 256), 8 + 4 + 64);
  EXPECT_EQ(bytes("hadamard_ef:3", 512), 8 + 2 * (4 + 96));
  EXPECT_EQ(bytes("eden:3", 512), 8 + 2 * (4 + 96));
  EXPECT_EQ(bytes("tile:4", 1), 4 + 4);
  EXPECT_EQ(bytes("tile:4", 257), 4 + 128 + 4 + 4);
  EXPECT_EQ(bytes("tile:4", 256 + 100), 4 + 128 + 4 + 64);
}

}  // namespace
}  // namespace runnel::tile_test
