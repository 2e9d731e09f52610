// Every instruction set that this machine has gives the scalar rows' bytes and doubles.

#include "compress/kernels/codec_kernels.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/bit_pack.h"
#include "compress/mbq/mbq_math.h"
#include "gtest/gtest.h"
#include "proto/base/tensor/quantize.h"
#include "tests/compress/guarded_buffer.h"
#include "tests/compress/test_tensors.h"

namespace runnel::codec_kernels_test {
namespace {

constexpr uint64_t kSeed = 20240611;
constexpr size_t kSizes[] = {1,   2,   7,   8,   15,  16,  17,  63,  64,   65,   127,
                             128, 129, 191, 192, 255, 511, 512, 513, 1000, 1088, 4099};

class CodecKernelsTest : public testing::TestWithParam<const CodecKernels*> {
 protected:
  void SetUp() override { RecordProperty("seed", static_cast<int>(kSeed)); }
  const CodecKernels& kernels() const { return *GetParam(); }
};

template <typename T>
bool SameBytes(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

void ExpectSameSums(const MbqSums& a, const MbqSums& b, int k) {
  EXPECT_TRUE(SameBytes(a.x, b.x));
  for (int i = 0; i < k; ++i) {
    EXPECT_TRUE(SameBytes(a.ones_x[i], b.ones_x[i])) << "plane " << i;
    EXPECT_EQ(a.ones[i], b.ones[i]) << "plane " << i;
    for (int j = i + 1; j < k; ++j) EXPECT_EQ(a.differ[i][j], b.differ[i][j]) << i << ", " << j;
  }
}

// Alphas as they may stand in a state or a payload: near the data, unrelated, unsorted, negative.
std::vector<Alphas> SomeAlphas(const std::vector<float>& x, int k, uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 1, 0);
  std::vector<Alphas> all(4);
  all[0] = GreedyAlphas(x.data(), x.size(), k);
  for (int i = 0; i < k; ++i) {
    all[1][i] = 1.0f / static_cast<float>(1 << i);
    all[2][i] = 1.0f - 0.09f * static_cast<float>(i);
    all[3][i] = static_cast<float>(random.Normal(i));
  }
  return all;
}

// Memory for one size and width, walled in at the end or at the beginning.
struct MbqMemory {
  MbqMemory(size_t n, int k, Guard guard)
      : x(4 * n, guard), planes(k * PlaneBytes(n), guard), out(4 * n, guard) {}
  GuardedBuffer x, planes, out;
};

void CompareMbq(const CodecKernels& kernels, const NamedTensor& tensor, int k, const Alphas& alpha,
                absl::Span<MbqMemory* const> memories) {
  SCOPED_TRACE(absl::StrCat(tensor.name, ", n ", tensor.values.size(), ", k ", k));
  const size_t n = tensor.values.size();
  const size_t payload = k * PlaneBytes(n);
  const MbqSearch search = MakeSearch(alpha, k);
  const MbqLevels levels = MakeLevels(alpha, k, 0.125f);
  std::vector<std::byte> expected(payload);
  MbqSums expected_sums;
  kScalarCodecKernels.mbq_encode(tensor.values.data(), n, search, expected.data(), &expected_sums);
  std::vector<float> expected_values(n);
  kScalarCodecKernels.mbq_decode(expected.data(), n, levels, expected_values.data());
  for (MbqMemory* memory : memories) {
    std::memcpy(memory->x.floats(), tensor.values.data(), 4 * n);
    MbqSums sums;
    kernels.mbq_encode(memory->x.floats(), n, search, memory->planes.bytes().data(), &sums);
    ASSERT_EQ(std::memcmp(memory->planes.bytes().data(), expected.data(), payload), 0);
    ExpectSameSums(sums, expected_sums, k);
    kernels.mbq_decode(memory->planes.bytes().data(), n, levels, memory->out.floats());
    ASSERT_EQ(std::memcmp(memory->out.floats(), expected_values.data(), 4 * n), 0);
  }
}

TEST_P(CodecKernelsTest, MbqIsTheScalarOne) {
  int unnatural = 0;
  for (size_t n : kSizes) {
    const std::vector<NamedTensor> tensors = HardTensors(n, kSeed + n);
    for (int k = 2; k <= kMaxMbqBits; ++k) {
      MbqMemory after(n, k, Guard::kAfter), before(n, k, Guard::kBefore);
      for (const NamedTensor& tensor : tensors) {
        for (const Alphas& alpha : SomeAlphas(tensor.values, k, kSeed + n + k)) {
          unnatural += MakeSearch(alpha, k).natural ? 0 : 1;
          CompareMbq(kernels(), tensor, k, alpha, {&after, &before});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(unnatural, 100);  // both kinds of search have been used
}

// Values in the planes that no encoder would send together still decode alike.
TEST_P(CodecKernelsTest, MbqDecodesAnyBits) {
  const CounterRandom random(kSeed, RandomPurpose::kTest, 2, 0);
  for (int k = 2; k <= kMaxMbqBits; ++k) {
    const size_t n = 1003;
    std::vector<std::byte> planes(k * PlaneBytes(n));
    for (size_t i = 0; i < planes.size(); ++i) {
      planes[i] = static_cast<std::byte>(random.Below(i, 256));
    }
    MbqLevels levels;
    levels.k = k;
    for (int code = 0; code < (1 << k); ++code) levels.value[code] = static_cast<float>(code);
    std::vector<uint8_t> codes(n);
    UnpackPlanes(planes.data(), PlaneBytes(n), n, k, codes.data());
    std::vector<float> out(n);
    kernels().mbq_decode(planes.data(), n, levels, out.data());
    for (size_t e = 0; e < n; ++e) ASSERT_EQ(out[e], codes[e]) << "k " << k << ", element " << e;
  }
}

TEST_P(CodecKernelsTest, MaxAbsIsTheScalarOne) {
  for (size_t n : kSizes) {
    for (const NamedTensor& tensor : HardTensors(n, kSeed + n)) {
      GuardedBuffer x(4 * n, Guard::kAfter);
      std::memcpy(x.floats(), tensor.values.data(), 4 * n);
      EXPECT_EQ(kernels().max_abs_bits(x.floats(), n),
                kScalarCodecKernels.max_abs_bits(x.floats(), n));
      // Wherever a NaN stands, it is seen.
      for (size_t e = 0; e < n; e += 1 + n / 7) {
        x.floats()[e] = std::numeric_limits<float>::quiet_NaN();
        EXPECT_GE(kernels().max_abs_bits(x.floats(), n), 0x7F800000u) << e << " of " << n;
        x.floats()[e] = tensor.values[e];
      }
    }
  }
}

TEST_P(CodecKernelsTest, MarksAreTheScalarOnes) {
  for (size_t n : kSizes) {
    for (const NamedTensor& tensor : HardTensors(n, kSeed + n)) {
      const std::vector<float>& x = tensor.values;
      const float middle = x[n / 2];
      for (const auto& [low, high] : {std::pair{-1.0f, 1.0f}, {middle, middle}, {0.0f, 1e30f}}) {
        const size_t bytes = PlaneBytes(n);
        GuardedBuffer values(4 * n, Guard::kAfter), below(bytes, Guard::kAfter),
            above(bytes, Guard::kAfter);
        std::memcpy(values.floats(), x.data(), 4 * n);
        const int64_t outside = kernels().mark_outside(values.floats(), n, low, high,
                                                       below.bytes().data(), above.bytes().data());
        int64_t expected = 0;
        for (size_t e = 0; e < 8 * bytes; ++e) {
          const std::byte bit{static_cast<uint8_t>(1u << e % 8)};
          const bool is_below = e < n && x[e] < low, is_above = e < n && x[e] > high;
          ASSERT_EQ((below.bytes()[e / 8] & bit) != std::byte{0}, is_below) << e << " of " << n;
          ASSERT_EQ((above.bytes()[e / 8] & bit) != std::byte{0}, is_above) << e << " of " << n;
          expected += is_below || is_above ? 1 : 0;
        }
        EXPECT_EQ(outside, expected);
      }
    }
  }
}

struct StochasticCase {
  const NamedTensor* tensor;
  int bits;
  float scale;
};

void CompareStochastic(const CodecKernels& kernels, const StochasticCase& c) {
  SCOPED_TRACE(absl::StrCat(c.tensor->name, ", n ", c.tensor->values.size(), ", bits ", c.bits));
  const size_t n = c.tensor->values.size();
  const size_t payload = c.bits == 8 ? n : NibbleBytes(n);
  const auto encode =
      c.bits == 8 ? &CodecKernels::stochastic_encode8 : &CodecKernels::stochastic_encode4;
  const auto decode =
      c.bits == 8 ? &CodecKernels::stochastic_decode8 : &CodecKernels::stochastic_decode4;
  const CounterRandom random(kSeed, RandomPurpose::kCodecBackward, 7, 0x123456789ABu);
  std::vector<std::byte> expected(payload);
  (kScalarCodecKernels.*encode)(c.tensor->values.data(), n, c.scale, random, expected.data());
  std::vector<float> expected_values(n);
  (kScalarCodecKernels.*decode)(expected.data(), n, c.scale, expected_values.data());
  for (Guard guard : {Guard::kAfter, Guard::kBefore}) {
    GuardedBuffer g(4 * n, guard), q(payload, guard), out(4 * n, guard);
    std::memcpy(g.floats(), c.tensor->values.data(), 4 * n);
    (kernels.*encode)(g.floats(), n, c.scale, random, q.bytes().data());
    ASSERT_EQ(std::memcmp(q.bytes().data(), expected.data(), payload), 0);
    (kernels.*decode)(q.bytes().data(), n, c.scale, out.floats());
    ASSERT_EQ(std::memcmp(out.floats(), expected_values.data(), 4 * n), 0);
  }
}

TEST_P(CodecKernelsTest, StochasticIsTheScalarOne) {
  for (size_t n : kSizes) {
    for (const NamedTensor& tensor : HardTensors(n, kSeed + n)) {
      const uint32_t bits = kScalarCodecKernels.max_abs_bits(tensor.values.data(), n);
      float max_abs;
      std::memcpy(&max_abs, &bits, sizeof(bits));
      for (int width : {4, 8}) {
        const float scale = max_abs / (width == 8 ? 127.0f : 7.0f);
        if (scale == 0.0f) continue;
        CompareStochastic(kernels(), {&tensor, width, scale});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A long tensor of the largest magnitude: quotients a rounding above the limit meet draws close to
// 1, and below minus the limit draws close to 0.
TEST_P(CodecKernelsTest, StochasticClampsAtBothEnds) {
  NamedTensor tensor{"extremes", std::vector<float>(1 << 20)};
  int above = 0;
  for (int step = 0; step < 8; ++step) {
    const float top = 1.0f + 0.1234f * static_cast<float>(step);
    for (size_t e = 0; e < tensor.values.size(); ++e) tensor.values[e] = e % 2 ? top : -top;
    for (int width : {4, 8}) {
      const float limit = width == 8 ? 127.0f : 7.0f;
      above += top / (top / limit) > limit ? 1 : 0;
      CompareStochastic(kernels(), {&tensor, width, top / limit});
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(above, 0);
}

TEST_P(CodecKernelsTest, StochasticDecodesAnyBytes) {
  std::vector<std::byte> bytes(259);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  std::vector<float> out(2 * bytes.size());
  kernels().stochastic_decode8(bytes.data(), bytes.size(), 0.5f, out.data());
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(out[i], 0.5f * static_cast<float>(static_cast<int8_t>(i)));
  }
  kernels().stochastic_decode4(bytes.data(), out.size(), 0.5f, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    const int byte = static_cast<uint8_t>(i / 2);
    ASSERT_EQ(out[i], 0.5f * static_cast<float>((i % 2 ? byte & 15 : byte >> 4) - 8));
  }
}

// quantize.h is the specification.
TEST_P(CodecKernelsTest, Int8IsThatOfQuantize) {
  for (size_t n : kSizes) {
    for (const NamedTensor& tensor : HardTensors(n, kSeed + n)) {
      SCOPED_TRACE(absl::StrCat(tensor.name, ", n ", n));
      std::vector<int8_t> expected(n);
      const int32_t exponent =
          Quantize(tensor.values, QuantizeRule::kPowerOfTwo, absl::MakeSpan(expected));
      std::vector<float> expected_values(n);
      Dequantize(expected, exponent, absl::MakeSpan(expected_values));
      GuardedBuffer x(4 * n, Guard::kAfter), mantissas(n, Guard::kAfter), out(4 * n, Guard::kAfter);
      std::memcpy(x.floats(), tensor.values.data(), 4 * n);
      kernels().int8->encode(x.floats(), n, exponent, mantissas.bytes().data());
      ASSERT_EQ(std::memcmp(mantissas.bytes().data(), expected.data(), n), 0);
      ASSERT_TRUE(kernels().int8->decode(mantissas.bytes().data(), n, exponent, out.floats()));
      ASSERT_EQ(std::memcmp(out.floats(), expected_values.data(), 4 * n), 0);
      mantissas.bytes()[n / 3] = std::byte{0x80};
      EXPECT_FALSE(kernels().int8->decode(mantissas.bytes().data(), n, exponent, out.floats()));
    }
  }
}

// All halves, and what is next to them.
TEST_P(CodecKernelsTest, Int8RoundsHalvesAway) {
  std::vector<float> x;
  for (int half = -257; half <= 257; ++half) {
    const float value = static_cast<float>(half) * 0.5f;
    x.push_back(std::clamp(value, -128.0f, 128.0f));
    x.push_back(std::nextafter(x.back(), 0.0f));
    if (std::abs(value) < 128) x.push_back(std::nextafter(value, 200.0f * value));
  }
  std::vector<int8_t> expected(x.size());
  const int32_t exponent = Quantize(x, QuantizeRule::kPowerOfTwo, absl::MakeSpan(expected));
  ASSERT_EQ(exponent, 0);
  std::vector<std::byte> mantissas(x.size());
  kernels().int8->encode(x.data(), x.size(), exponent, mantissas.data());
  EXPECT_EQ(std::memcmp(mantissas.data(), expected.data(), x.size()), 0);
}

TEST_P(CodecKernelsTest, TilesAreTheScalarOnes) {
  const CounterRandom random(kSeed, RandomPurpose::kCodecBackward, 7, 0x123456789ABu);
  for (size_t n : kSizes) {
    const size_t rest = n % kTileElements;
    for (const NamedTensor& tensor : HardTensors(n, kSeed + n)) {
      if (tensor.name == "huge") continue;  // above kMaxTileMagnitude
      for (int bits = 2; bits <= 8; ++bits) {
        const size_t payload = n / kTileElements * TileBytes(kTileElements, bits) +
                               (rest > 0 ? TileBytes(TileWidth(rest), bits) : 0);
        for (int variant = 0; variant < 4; ++variant) {
          SCOPED_TRACE(absl::StrCat(tensor.name, ", n ", n, ", bits ", bits, ", ", variant));
          const TileCoding coding{bits, variant % 2 == 1, {0x89ABCDEFu, 0x01234567u}};
          const CounterRandom* draws = variant / 2 == 1 ? &random : nullptr;
          std::vector<std::byte> expected(payload);
          std::vector<float> expected_values(n);
          kScalarTileKernels.encode(tensor.values.data(), n, coding, draws, expected.data());
          kScalarTileKernels.decode(expected.data(), n, coding, expected_values.data());
          GuardedBuffer x(4 * n, Guard::kAfter), tiles(payload, Guard::kAfter),
              out(4 * n, Guard::kAfter);
          std::memcpy(x.floats(), tensor.values.data(), 4 * n);
          ASSERT_TRUE(kernels().tile->encode(x.floats(), n, coding, draws, tiles.bytes().data()));
          ASSERT_EQ(std::memcmp(tiles.bytes().data(), expected.data(), payload), 0);
          kernels().tile->decode(tiles.bytes().data(), n, coding, out.floats());
          ASSERT_EQ(std::memcmp(out.floats(), expected_values.data(), 4 * n), 0);
        }
      }
    }
  }
}

// Wherever it stands.
TEST_P(CodecKernelsTest, TilesRefuseWhatTheyCannotHold) {
  for (size_t n : {5u, 256u, 1100u}) {
    std::vector<float> x = NormalTensor(n, kSeed);
    std::vector<std::byte> tiles(8 * n + 64);
    for (float value : {std::numeric_limits<float>::quiet_NaN(), -kMaxTileMagnitude * 2,
                        std::numeric_limits<float>::infinity()}) {
      for (size_t e = 0; e < n; e += 1 + n / 9) {
        const float old = std::exchange(x[e], value);
        EXPECT_FALSE(
            kernels().tile->encode(x.data(), n, {4, e % 2 == 1, {}}, nullptr, tiles.data()));
        x[e] = -kMaxTileMagnitude;
        EXPECT_TRUE(
            kernels().tile->encode(x.data(), n, {4, e % 2 == 1, {}}, nullptr, tiles.data()));
        x[e] = old;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodecKernelsTest, testing::ValuesIn(SupportedCodecKernels()),
                         [](const testing::TestParamInfo<const CodecKernels*>& info) {
                           const absl::string_view name = info.param->name;
                           return std::string(name.data(), name.size());
                         });

TEST(MergeLanes, AddsInItsTreeOrder) {
  SumLanes lanes = {};
  lanes[0] = 1e300;
  lanes[8] = -1e300;  // meets lane 0 first: nothing of lane 1 is lost
  lanes[1] = 1.0;
  EXPECT_EQ(MergeLanes(lanes), 1.0);
}

}  // namespace
}  // namespace runnel::codec_kernels_test
