#include "proto/base/tensor/dtype.h"

#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/tensor/quantize.h"
#include "proto/base/tensor/small_float.h"

namespace runnel {
namespace {

void CopyToFloat(absl::Span<const std::byte> elements, int32_t, absl::Span<float> values) {
  std::memcpy(values.data(), elements.data(), values.size() * sizeof(float));
}

int32_t CopyFromFloat(absl::Span<const float> values, absl::Span<std::byte> elements) {
  std::memcpy(elements.data(), values.data(), values.size() * sizeof(float));
  return 0;
}

void DequantizeInt8(absl::Span<const std::byte> elements, int32_t exponent,
                    absl::Span<float> values) {
  Dequantize({reinterpret_cast<const int8_t*>(elements.data()), values.size()}, exponent, values);
}

int32_t QuantizeInt8(absl::Span<const float> values, absl::Span<std::byte> elements) {
  return Quantize(values, QuantizeRule::kPowerOfTwo,
                  absl::MakeSpan(reinterpret_cast<int8_t*>(elements.data()), values.size()));
}

bool FloatsAreFinite(absl::Span<const std::byte> floats) {
  constexpr uint32_t kExponent = 0x7F800000;
  bool finite = true;
  for (size_t at = 0; at + sizeof(uint32_t) <= floats.size(); at += sizeof(uint32_t)) {
    uint32_t bits = 0;
    std::memcpy(&bits, floats.data() + at, sizeof(bits));
    finite &= (bits & kExponent) != kExponent;
  }
  return finite;
}

template <typename T>
constexpr double kLargest = static_cast<double>(std::numeric_limits<T>::max());

using enum DType;
using enum NumberKind;

// By number, from 1 on.
constexpr NumberType kTypes[] = {
    {kFloat32, "f32", 4, kFloat, kLargest<float>, 3.7 + 0.9, 0.9, CopyToFloat, CopyFromFloat},
    {kFloat16, "f16", 2, kFloat, 65504, 3.7 + 0.9, 0.9, DecodeSmall<kHalfFormat>,
     EncodeSmall<kHalfFormat>},
    {kInt8, "i8", 1, kMantissa, 127, 0.2 + 0.1, 0.1, DequantizeInt8, QuantizeInt8},
    {kInt32, "i32", 4, kMantissa, kLargest<int32_t>, 0.2 + 0.1, 0.1, nullptr, nullptr},
    {kInt64, "i64", 8, kMantissa, kLargest<int64_t>, 0.2 + 0.1, 0.1, nullptr, nullptr},
    {kUInt8, "u8", 1, kCode, 255, 0.2 + 0.1, 0.1, nullptr, nullptr},
    {kBFloat16, "bf16", 2, kFloat, 0x1.FEp127, 3.7 + 0.9, 0.9, DecodeSmall<kBFloat16Format>,
     EncodeSmall<kBFloat16Format>},
    {kE4M3, "e4m3", 1, kFloat, 448, 3.7 + 0.9, 0.9, DecodeSmall<kE4M3Format>,
     EncodeSmall<kE4M3Format>},
    {kE5M2, "e5m2", 1, kFloat, 57344, 3.7 + 0.9, 0.9, DecodeSmall<kE5M2Format>,
     EncodeSmall<kE5M2Format>},
};

}  // namespace

absl::Span<const NumberType> NumberTypes() { return kTypes; }

const NumberType& TypeOf(DType dtype) { return kTypes[static_cast<size_t>(dtype) - 1]; }

absl::StatusOr<DType> DTypeFromNumber(uint32_t number) {
  if (number < 1 || number > std::size(kTypes)) {
    return absl::InvalidArgumentError(absl::StrCat("dtype ", number, " is not known"));
  }
  return kTypes[number - 1].dtype;
}

absl::StatusOr<DType> DTypeFromName(absl::string_view name) {
  std::vector<absl::string_view> names;
  for (const NumberType& row : kTypes) {
    if (row.name == name) return row.dtype;
    names.push_back(row.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("number type '", name, "' is not known; there is ", absl::StrJoin(names, ", ")));
}

bool AllFinite(DType dtype, absl::Span<const std::byte> elements) {
  const NumberType& type = TypeOf(dtype);
  if (type.kind != kFloat) return true;
  if (dtype == kFloat32) return FloatsAreFinite(elements);
  std::vector<float> values(elements.size() / type.bytes);
  type.to_float(elements, 0, absl::MakeSpan(values));
  return FloatsAreFinite({reinterpret_cast<const std::byte*>(values.data()), 4 * values.size()});
}

}  // namespace runnel
