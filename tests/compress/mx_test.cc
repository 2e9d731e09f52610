// mx against the specification's words, written out slowly, and the numbers that it lists.

#include "compress/mx.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::mx_test {
namespace {

constexpr uint64_t kSeed = 20230930;  // of the specification, version 1.0

struct ElementFormat {
  int bits, exponent_bits, mantissa_bits, bias, emax;
};
constexpr ElementFormat kFormats[] = {{4, 2, 1, 1, 2}, {6, 3, 2, 3, 4}, {8, 4, 3, 7, 8}};

// NaN for E4M3's code of it.
double NumberOf(const ElementFormat& format, int code) {
  const int exponent = code >> format.mantissa_bits & ((1 << format.exponent_bits) - 1);
  const int mantissa = code & ((1 << format.mantissa_bits) - 1);
  if (format.bits == 8 && exponent == 15 && mantissa == 7) return std::nan("");
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - format.bias)
                                         : std::ldexp(1 + fraction, exponent - format.bias);
  return code >> (format.bits - 1) ? -magnitude : magnitude;
}

// The nearest number; of two equally near ones that with the even mantissa.
int NearestCode(const ElementFormat& format, double value) {
  const int half = 1 << (format.bits - 1);
  int best = 0;
  for (int code = 0; code < half; ++code) {
    const double number = NumberOf(format, code);
    if (std::isnan(number)) continue;
    const double error = std::abs(std::abs(value) - number);
    const double least = std::abs(std::abs(value) - NumberOf(format, best));
    if (error < least || (error == least && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(value) ? half : 0);
}

std::vector<std::byte> Reference(const ElementFormat& format, const std::vector<float>& x) {
  std::vector<std::byte> payload;
  for (size_t first = 0; first < x.size(); first += 32) {
    const size_t count = std::min<size_t>(32, x.size() - first);
    double most = 0;
    for (size_t i = 0; i < count; ++i) most = std::max(most, std::abs(double{x[first + i]}));
    const int exponent = most == 0 ? -127 : std::max(std::ilogb(most) - format.emax, -127);
    payload.push_back(static_cast<std::byte>(exponent + 127));
    std::vector<bool> bits;
    for (size_t i = 0; i < count; ++i) {
      const int code = NearestCode(format, std::ldexp(double{x[first + i]}, -exponent));
      for (int bit = 0; bit < format.bits; ++bit) bits.push_back(code >> bit & 1);
    }
    for (size_t at = 0; at < bits.size(); at += 8) {
      int byte = 0;
      for (size_t bit = at; bit < std::min(at + 8, bits.size()); ++bit) {
        byte |= static_cast<int>(bits[bit]) << (bit - at);
      }
      payload.push_back(static_cast<std::byte>(byte));
    }
  }
  return payload;
}

std::vector<std::byte> Encoded(int bits, const std::vector<float>& x,
                               const CodecKernels& kernels = BestCodecKernels()) {
  const auto codec = MakeMxCodec(bits, kernels);
  const Shape shape = {static_cast<int64_t>(x.size())};
  std::vector<std::byte> payload(static_cast<size_t>(codec->EncodedBytes(shape).value()));
  const absl::Status status =
      codec->NewEncoder({})->Encode(ViewOf(x, shape), Sequence(0), true, absl::MakeSpan(payload));
  EXPECT_TRUE(status.ok()) << status;
  return payload;
}

absl::Status Decode(int bits, const std::vector<std::byte>& payload, std::vector<float>& out) {
  const Shape shape = {static_cast<int64_t>(out.size())};
  return MakeMxCodec(bits, BestCodecKernels())
      ->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape));
}

TEST(Mx, LargestAndSmallestNumbersAreTheSpecifications) {
  EXPECT_EQ(NumberOf(kFormats[0], 7), 6);
  EXPECT_EQ(NumberOf(kFormats[0], 1), 0.5);
  EXPECT_EQ(NumberOf(kFormats[1], 31), 28);
  EXPECT_EQ(NumberOf(kFormats[1], 1), 0.0625);
  EXPECT_EQ(NumberOf(kFormats[2], 0x7E), 448);
  EXPECT_EQ(NumberOf(kFormats[2], 1), 0x1p-9);
}

TEST(Mx, IsItsDefinition) {
  for (const ElementFormat& format : kFormats) {
    for (size_t n : {1u, 3u, 31u, 32u, 33u, 64u, 500u}) {
      for (const NamedTensor& tensor : HardTensors(n, kSeed + n)) {
        SCOPED_TRACE(absl::StrCat("fp", format.bits, ", ", tensor.name, ", n ", n));
        const std::vector<std::byte> expected = Reference(format, tensor.values);
        for (const CodecKernels* kernels : SupportedCodecKernels()) {
          ASSERT_EQ(Encoded(format.bits, tensor.values, *kernels), expected);
        }
        std::vector<float> out(n);
        ASSERT_TRUE(Decode(format.bits, expected, out).ok());
        for (size_t e = 0; e < n; ++e) {
          const size_t block = e / 32 * (1 + 4 * format.bits);
          const int exponent = std::to_integer<int>(expected[block]) - 127;
          const int code = NearestCode(format, std::ldexp(double{tensor.values[e]}, -exponent));
          const double value = std::ldexp(NumberOf(format, code), exponent);
          ASSERT_EQ(out[e], value) << e;
          ASSERT_EQ(std::signbit(out[e]), std::signbit(tensor.values[e])) << e;
        }
      }
    }
  }
}

// Halfway between neighbours, and one place of FP32 to both sides.
TEST(Mx, TiesGoToTheEvenNumber) {
  for (const ElementFormat& format : kFormats) {
    std::vector<float> x;
    for (int code = 0; code + 1 < 1 << (format.bits - 1); ++code) {
      const double next = NumberOf(format, code + 1);
      if (std::isnan(next)) continue;
      const auto middle = static_cast<float>((NumberOf(format, code) + next) / 2);
      for (float value : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)}) {
        // A block of its own scale, 1.
        std::vector<float> block(32, 0.0f);
        block[0] = static_cast<float>(std::ldexp(1.0, format.emax));
        block[1] = value;
        block[2] = -value;
        x.insert(x.end(), block.begin(), block.end());
      }
    }
    EXPECT_EQ(Encoded(format.bits, x), Reference(format, x)) << format.bits;
  }
}

TEST(Mx, BeyondTheLargestNumberIsThatNumber) {
  for (const ElementFormat& format : kFormats) {
    const auto most = static_cast<float>(std::ldexp(1.0, format.emax + 1) * (1 - 0x1p-24));
    std::vector<float> out(2);
    ASSERT_TRUE(Decode(format.bits, Encoded(format.bits, {most, -most}), out).ok());
    const int largest = format.bits == 8 ? 0x7E : (1 << (format.bits - 1)) - 1;
    EXPECT_EQ(out[0], NumberOf(format, largest));
    EXPECT_EQ(out[1], -NumberOf(format, largest));
  }
}

TEST(Mx, ImpossiblePayloadsAreRefused) {
  for (const ElementFormat& format : kFormats) {
    std::vector<float> out(5);
    const std::vector<std::byte> good = Encoded(format.bits, {1, -2, 3, -4, 5});
    ASSERT_TRUE(Decode(format.bits, good, out).ok());
    for (int scale = 0; scale < 256; ++scale) {
      std::vector<std::byte> payload = good;
      payload[0] = static_cast<std::byte>(scale);
      // The largest number times 2^(254 - 127 - emax) is the last in FP32; 255 is NaN.
      EXPECT_EQ(Decode(format.bits, payload, out).ok(), scale <= 254 - format.emax) << scale;
      for (float value : out) EXPECT_TRUE(std::isfinite(value)) << scale;
    }
    if (format.bits == 8) {
      for (int code = 0; code < 256; ++code) {
        std::vector<std::byte> payload = good;
        payload[2] = static_cast<std::byte>(code);
        EXPECT_EQ(Decode(8, payload, out).ok(), (code & 0x7F) != 0x7F) << code;
      }
    } else {  // 5 elements end within a byte
      std::vector<std::byte> payload = good;
      payload.back() |= std::byte{0x80};
      EXPECT_FALSE(Decode(format.bits, payload, out).ok());
    }
  }
}

TEST(Mx, SizesAreKnown) {
  const auto bytes = [](int bits, int64_t n) {
    return MakeMxCodec(bits, BestCodecKernels())->EncodedBytes({n}).value();
  };
  EXPECT_EQ(bytes(4, 320), 10 * 17);
  EXPECT_EQ(bytes(6, 320), 10 * 25);
  EXPECT_EQ(bytes(8, 320), 10 * 33);
  EXPECT_EQ(bytes(4, 33), 17 + 2);
  EXPECT_EQ(bytes(6, 3), 1 + 3);
  EXPECT_EQ(bytes(6, 4), 1 + 3);
}

}  // namespace
}  // namespace runnel::mx_test
