#include "proto/base/tensor/float16.h"

#include <bit>
#include <cstring>

namespace runnel {
namespace {

constexpr uint32_t kSign = 0x8000;
constexpr uint32_t kInfinity = 0x7C00;
constexpr uint32_t kQuietNan = 0x7E00;

float Decode(uint16_t half) {
  const uint32_t exponent = (half & kInfinity) >> 10;
  const uint32_t fraction = half & 0x3FF;
  const uint32_t sign = (half & kSign) << 16;
  if (exponent == 0) {  // zero, subnormal: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// Half of `bits` >> shift, to nearest even.
uint32_t ShiftToEven(uint32_t bits, uint32_t shift) {
  const uint32_t half = (uint32_t{1} << (shift - 1)) - 1;
  return (bits + half + ((bits >> shift) & 1)) >> shift;
}

uint16_t Encode(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & kSign;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t half = kInfinity;
  if (magnitude > 0x7F800000) {
    half = kQuietNan;
  } else if (magnitude < 0x38800000) {  // below 2^-14: subnormal
    const uint32_t shift = 126 - (magnitude >> 23);
    half = shift > 24 ? 0 : ShiftToEven((magnitude & 0x7FFFFF) | 0x800000, shift);
  } else if (magnitude < 0x477FF000) {  // below 65520; a carry of the fraction raises the exponent
    half = ShiftToEven(magnitude - ((127 - 15) << 23), 13);
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace

void Float16ToFloat(absl::Span<const std::byte> elements, int32_t, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, elements.data() + i * sizeof(half), sizeof(half));
    values[i] = Decode(half);
  }
}

int32_t FloatToFloat16(absl::Span<const float> values, absl::Span<std::byte> elements) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = Encode(values[i]);
    std::memcpy(elements.data() + i * sizeof(half), &half, sizeof(half));
  }
  return 0;
}

}  // namespace runnel
