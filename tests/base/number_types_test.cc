// The table of number types.

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/tensor/dtype.h"

namespace runnel {
namespace {

// The compiler's type.
#ifdef __aarch64__
using Half = __fp16;
#else
using Half = _Float16;
#endif

std::vector<std::byte> Encode(DType dtype, absl::Span<const float> values) {
  std::vector<std::byte> elements(values.size() * SizeOf(dtype));
  TypeOf(dtype).from_float(values, absl::MakeSpan(elements));
  return elements;
}

std::vector<float> Decode(DType dtype, absl::Span<const std::byte> elements, int32_t exponent = 0) {
  std::vector<float> values(elements.size() / SizeOf(dtype));
  TypeOf(dtype).to_float(elements, exponent, absl::MakeSpan(values));
  return values;
}

TEST(NumberTypes, RowsStandByNumberAndHaveNamesOfTheirOwn) {
  uint32_t number = 0;
  for (const NumberType& row : NumberTypes()) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(static_cast<uint32_t>(row.dtype), ++number);
    EXPECT_EQ(&TypeOf(row.dtype), &row);
    EXPECT_EQ(*DTypeFromNumber(number), row.dtype);
    EXPECT_GT(row.bytes, 0);
    EXPECT_GE(row.mac_picojoules, row.add_picojoules);
    for (const NumberType& other : NumberTypes()) EXPECT_EQ(other.name == row.name, &other == &row);
    EXPECT_EQ(row.to_float == nullptr, row.from_float == nullptr);
    if (row.kind == NumberKind::kFloat) {
      ASSERT_NE(row.to_float, nullptr);
    }
  }
  EXPECT_FALSE(DTypeFromNumber(0).ok());
  EXPECT_FALSE(DTypeFromNumber(number + 1).ok());
}

// Of every floating row: a value of the type stays what it is, and others go to a neighbour.
TEST(NumberTypes, FloatsKeepTheirValues) {
  const CounterRandom random(5, RandomPurpose::kTest, 0, 0);
  for (const NumberType& row : NumberTypes()) {
    if (row.kind != NumberKind::kFloat) continue;
    SCOPED_TRACE(row.name);
    std::vector<float> values = {0.0f, -0.0f, 1.0f, -1.0f, static_cast<float>(row.largest)};
    for (uint64_t i = 0; i < 2000; ++i)
      values.push_back((random.Uniform(i) - 0.5f) * std::exp2(random.Uniform(i + 2000) * 30 - 20));
    const std::vector<float> once = Decode(row.dtype, Encode(row.dtype, values));
    const std::vector<float> twice = Decode(row.dtype, Encode(row.dtype, once));
    EXPECT_EQ(std::memcmp(once.data(), twice.data(), 4 * once.size()), 0);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(once[i], values[i]);
    EXPECT_TRUE(std::signbit(once[1]));
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(once[i], values[i], std::fabs(values[i]) / 1024 + 1e-7) << i;
  }
}

TEST(NumberTypes, EveryHalfIsTheCompilers) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto half = static_cast<uint16_t>(code);
    std::vector<std::byte> element(2);
    std::memcpy(element.data(), &half, 2);
    const float value = Decode(DType::kFloat16, element)[0];
    const auto want = static_cast<float>(std::bit_cast<Half>(half));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(value)) << code;
      EXPECT_TRUE(std::isnan(Decode(DType::kFloat16, Encode(DType::kFloat16, {value}))[0]));
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(want)) << code;
    ASSERT_EQ(Encode(DType::kFloat16, {value}), element) << code;
    // Its neighbours in FP32, and what lies in the middle between it and the next half, with the
    // neighbours of that.
    const auto next = static_cast<float>(std::bit_cast<Half>(static_cast<uint16_t>(code + 1)));
    const float middle =
        std::isfinite(next) ? value + (next - value) / 2 : std::copysign(65520.0f, value);
    for (const float around : {value, middle}) {
      for (const float x :
           {std::nextafter(around, -INFINITY), around, std::nextafter(around, INFINITY)}) {
        const auto rounded = std::bit_cast<uint16_t>(static_cast<Half>(x));
        std::memcpy(element.data(), &rounded, 2);
        ASSERT_EQ(Encode(DType::kFloat16, {x}), element) << code << " " << x;
      }
    }
  }
}

TEST(NumberTypes, MantissasHaveAnExponent) {
  const std::vector<float> values = {0.5f, -1.0f, 0.25f};
  std::vector<std::byte> elements(3);
  const int32_t exponent = TypeOf(DType::kInt8).from_float(values, absl::MakeSpan(elements));
  EXPECT_EQ(exponent, -7);
  EXPECT_EQ(Decode(DType::kInt8, elements, exponent),
            (std::vector<float>{0.5f, -127.0f / 128, 0.25f}));
}

TEST(NumberTypes, WhatIsNoNumberIsFound) {
  for (const NumberType& row : NumberTypes()) {
    if (row.kind != NumberKind::kFloat) {
      EXPECT_TRUE(AllFinite(row.dtype, std::vector<std::byte>(16, std::byte{0xFF}))) << row.name;
      continue;
    }
    std::vector<float> values(100, 1.0f);
    EXPECT_TRUE(AllFinite(row.dtype, Encode(row.dtype, values))) << row.name;
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      values[99] = bad;
      EXPECT_FALSE(AllFinite(row.dtype, Encode(row.dtype, values))) << row.name;
    }
  }
}

}  // namespace
}  // namespace runnel
