// The table of number types.

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/base/tensor/dtype.h"

namespace runnel::number_types_test {
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

// What the sheets of the formats say, apart from the code.
struct Format {
  absl::string_view name;
  int mantissa_bits;
  int least;  // exponent of the smallest subnormal value
  int codes;  // that are finite and not negative
};
constexpr Format kFormats[] = {
    {"f32", 23, -149, 0}, {"f16", 10, -24, 0x7C00}, {"bf16", 7, -133, 0x7F80},
    {"e4m3", 3, -9, 127}, {"e5m2", 2, -16, 124},
};

const Format& FormatOf(const NumberType& row) {
  for (const Format& format : kFormats) {
    if (format.name == row.name) return format;
  }
  ADD_FAILURE() << row.name << " has no row in kFormats";
  return kFormats[0];
}

// Of every floating row: a value of the type stays what it is, and others go to a neighbour.
TEST(NumberTypes, FloatsKeepTheirValues) {
  const CounterRandom random(5, RandomPurpose::kTest, 0, 0);
  for (const NumberType& row : NumberTypes()) {
    if (row.kind != NumberKind::kFloat) continue;
    SCOPED_TRACE(row.name);
    std::vector<float> values = {0.0f, -0.0f, 1.0f, -1.0f, static_cast<float>(row.largest)};
    for (uint64_t i = 0; i < 2000; ++i)
      values.push_back((random.Uniform(i) - 0.5f) * std::exp2(random.Uniform(i + 2000) * 28 - 20));
    const std::vector<float> once = Decode(row.dtype, Encode(row.dtype, values));
    const std::vector<float> twice = Decode(row.dtype, Encode(row.dtype, once));
    EXPECT_EQ(std::memcmp(once.data(), twice.data(), 4 * once.size()), 0);
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(once[i], values[i]);
    EXPECT_TRUE(std::signbit(once[1]));
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(once[i], values[i],
                  std::ldexp(std::fabs(values[i]), -FormatOf(row).mantissa_bits - 1) +
                      std::ldexp(0.5, FormatOf(row).least))
          << i;
  }
}

std::vector<std::byte> ElementOf(const NumberType& row, uint32_t code) {
  std::vector<std::byte> element(row.bytes);
  std::memcpy(element.data(), &code, row.bytes);
  return element;
}

// The value of the n-th code that is not negative, worked out from the format: 2^mantissa_bits of
// them an octave, and as many, equally far apart, below the first.
double ValueOf(const Format& format, int n) {
  const int per_octave = 1 << format.mantissa_bits;
  const int octave = n / per_octave;
  return octave == 0 ? std::ldexp(n, format.least)
                     : std::ldexp(per_octave + n % per_octave, format.least + octave - 1);
}

// All codes of the types of 16 and 8 bits, what lies half way between two of them, and the nearest
// FP32 on both sides of that.
TEST(NumberTypes, EveryCodeAndEveryHalfWay) {
  for (const NumberType& row : NumberTypes()) {
    if (row.kind != NumberKind::kFloat || row.dtype == DType::kFloat32) continue;
    SCOPED_TRACE(row.name);
    const Format& format = FormatOf(row);
    const uint32_t sign = 1u << (8 * row.bytes - 1);
    EXPECT_EQ(row.largest, ValueOf(format, format.codes - 1));
    for (int n = 0; n < format.codes; ++n) {
      const auto value = static_cast<float>(ValueOf(format, n));
      const auto code = static_cast<uint32_t>(n);
      for (const uint32_t side : {uint32_t{0}, sign}) {
        const std::vector<std::byte> element = ElementOf(row, code | side);
        const float signed_value = side == 0 ? value : -value;
        const float decoded = Decode(row.dtype, element)[0];
        ASSERT_EQ(std::bit_cast<uint32_t>(decoded), std::bit_cast<uint32_t>(signed_value)) << code;
        ASSERT_EQ(Encode(row.dtype, {signed_value}), element) << code;
      }
      if (n + 1 == format.codes) continue;
      const auto middle = static_cast<float>((ValueOf(format, n) + ValueOf(format, n + 1)) / 2);
      const uint32_t even = code + (code & 1);
      EXPECT_EQ(Encode(row.dtype, {middle}), ElementOf(row, even)) << code;
      EXPECT_EQ(Encode(row.dtype, {-middle}), ElementOf(row, even | sign)) << code;
      EXPECT_EQ(Encode(row.dtype, {std::nextafter(middle, 0.0f)}), ElementOf(row, code)) << code;
      EXPECT_EQ(Encode(row.dtype, {std::nextafter(middle, INFINITY)}), ElementOf(row, code + 1))
          << code;
    }
  }
}

// Beyond the largest value: f16 and bf16 become infinite half a step further, the types of 8 bits
// never.
TEST(NumberTypes, BeyondTheLargest) {
  const auto decoded = [](DType dtype, float value) {
    return Decode(dtype, Encode(dtype, {value}))[0];
  };
  EXPECT_EQ(decoded(DType::kFloat16, 65519.99f), 65504);
  EXPECT_EQ(decoded(DType::kFloat16, 65520), INFINITY);
  EXPECT_EQ(decoded(DType::kBFloat16, 0x1.FEFFFEp127f), 0x1.FEp127f);
  EXPECT_EQ(decoded(DType::kBFloat16, -0x1.FFp127f), -INFINITY);
  EXPECT_EQ(decoded(DType::kE4M3, 1e30f), 448);
  EXPECT_EQ(decoded(DType::kE5M2, -1e30f), -57344);
  EXPECT_TRUE(std::isnan(decoded(DType::kE4M3, INFINITY)));
  EXPECT_EQ(decoded(DType::kE5M2, INFINITY), INFINITY);
  for (const uint32_t code : {0x7Fu, 0xFFu}) {
    EXPECT_TRUE(std::isnan(Decode(DType::kE4M3, ElementOf(TypeOf(DType::kE4M3), code))[0]));
    EXPECT_TRUE(std::isnan(Decode(DType::kE5M2, ElementOf(TypeOf(DType::kE5M2), code))[0]));
  }
}

TEST(NumberTypes, AreFoundByName) {
  EXPECT_EQ(*DTypeFromName("bf16"), DType::kBFloat16);
  EXPECT_EQ(DTypeFromName("bf17").status().message(),
            "number type 'bf17' is not known; there is f32, f16, i8, i32, i64, u8, bf16, e4m3, "
            "e5m2");
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
}  // namespace runnel::number_types_test
