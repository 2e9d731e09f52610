#include "proto/base/tensor/quantize.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace runnel::quantize_test {
namespace {

constexpr uint64_t kSeed = 20261;

// The definition, without any shortcut.
int8_t PowerOfTwoMantissa(float value, int32_t exponent) {
  const double scaled = std::ldexp(static_cast<double>(value), -exponent);
  return static_cast<int8_t>(std::fmin(127.0, std::fmax(-127.0, std::round(scaled))));
}

TEST(Quantize, PowerOfTwoIsItsDefinition) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  const CounterRandom random(kSeed, RandomPurpose::kTest, 0, 0);
  for (int power = -149; power <= 127; power += 3) {
    std::vector<float> values;
    for (uint64_t e = 0; e < 101; ++e) {
      const double value = std::ldexp(2.0 * random.Uniform(e) - 1.0, power);
      values.push_back(static_cast<float>(value));
    }
    // Halves, and what lies next to them.
    for (float half : {0.5f, 1.5f, 126.5f, 127.5f, 128.0f}) {
      const float value = std::ldexp(half, power - 7);
      for (float sign : {-1.0f, 1.0f}) {
        values.push_back(sign * value);
        values.push_back(sign * std::nextafter(value, 0.0f));
      }
    }
    std::vector<int8_t> mantissas(values.size());
    const int32_t exponent = Quantize(values, QuantizeRule::kPowerOfTwo, absl::MakeSpan(mantissas));
    EXPECT_GE(exponent, kMinFloatExponent);
    EXPECT_LE(exponent, kMaxFloatExponent);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(mantissas[i], PowerOfTwoMantissa(values[i], exponent)) << values[i];
  }
}

TEST(Quantize, FullRangeMakesTheLargest127) {
  const std::vector<float> values = {0.1f, -0.3f, 0.05f, 0.0f};
  std::vector<int8_t> mantissas(values.size());
  EXPECT_EQ(Quantize(values, QuantizeRule::kFullRange, absl::MakeSpan(mantissas)), -1 - 7);
  EXPECT_EQ(mantissas, (std::vector<int8_t>{42, -127, 21, 0}));
}

TEST(Quantize, ZerosAndWhatIsNoNumber) {
  std::vector<int8_t> mantissas(3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (QuantizeRule rule : {QuantizeRule::kFullRange, QuantizeRule::kPowerOfTwo}) {
    EXPECT_EQ(Quantize({0.0f, -0.0f, nan}, rule, absl::MakeSpan(mantissas)), 0);
    EXPECT_EQ(mantissas, (std::vector<int8_t>{0, 0, 0}));
    EXPECT_EQ(Quantize({nan, -infinity, 1.0f}, rule, absl::MakeSpan(mantissas)), kMaxFloatExponent);
    EXPECT_EQ(mantissas, (std::vector<int8_t>{0, -127, 0}));
  }
}

TEST(Quantize, DequantizedValuesAreExactAndComeBack) {
  std::vector<int8_t> mantissas;
  for (int m = -127; m <= 127; ++m) mantissas.push_back(static_cast<int8_t>(m));
  std::vector<float> values(mantissas.size());
  std::vector<int8_t> back(mantissas.size());
  for (int32_t exponent = -149; exponent <= kMaxFloatExponent; ++exponent) {
    Dequantize(mantissas, exponent, absl::MakeSpan(values));
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], std::ldexp(static_cast<double>(mantissas[i]), exponent));
    EXPECT_EQ(Quantize(values, QuantizeRule::kPowerOfTwo, absl::MakeSpan(back)), exponent);
    EXPECT_EQ(back, mantissas);
  }
  // Far below what FP32 has.
  Dequantize(mantissas, -5000, absl::MakeSpan(values));
  for (float value : values) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace runnel::quantize_test
