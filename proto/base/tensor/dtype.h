#pragma once

// The number types: element types of tensors, in memory and on the wire, one row each.

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel {

// Wire format: never reuse a number.
enum class DType : uint8_t {
  kFloat32 = 1,
  kFloat16 = 2,
  kInt8 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUInt8 = 6,
  kBFloat16 = 7,
  kE4M3 = 8,
  kE5M2 = 9
};

enum class NumberKind : uint8_t {
  kFloat,     // an element is a value
  kMantissa,  // value = element * 2^e, e the tensor's exponent (proto/base/model/number_format.h)
  kCode,      // an index or a byte, no value
};

// Conversions copy `values.size()` elements; neither side needs an alignment. Null in the rows of
// types whose tensors never become FP32.
struct NumberType {
  DType dtype;
  absl::string_view name;  // "f32"
  size_t bytes;            // of one element
  NumberKind kind;
  double largest;  // the largest value of an element
  // Energy of one multiplication with its addition, and of an addition alone, in picojoules
  // (worker/stage/counts/work_energy.h). Products of i8 are added up in 32 bits, those of 16-bit
  // floats in FP32.
  double mac_picojoules;
  double add_picojoules;
  // `exponent` is 0 for kFloat.
  void (*to_float)(absl::Span<const std::byte> elements, int32_t exponent,
                   absl::Span<float> values);
  // Returns the exponent. Rounds to nearest even (kFloat), half away from zero (kMantissa).
  int32_t (*from_float)(absl::Span<const float> values, absl::Span<std::byte> elements);
};

absl::Span<const NumberType> NumberTypes();
const NumberType& TypeOf(DType dtype);

inline size_t SizeOf(DType dtype) { return TypeOf(dtype).bytes; }
inline absl::string_view Name(DType dtype) { return TypeOf(dtype).name; }
inline bool IsFloat(DType dtype) { return TypeOf(dtype).kind == NumberKind::kFloat; }
// Floats of 16 bits, which programs compute with as values of FP32 sums.
inline bool IsHalf(DType dtype) { return IsFloat(dtype) && SizeOf(dtype) == 2; }
// Tensors of the type have one exponent for all elements.
inline bool IsScaled(DType dtype) { return TypeOf(dtype).kind == NumberKind::kMantissa; }

// InvalidArgument for a number that names no type (bytes from outside).
absl::StatusOr<DType> DTypeFromNumber(uint32_t number);
// InvalidArgument lists the names, for a name that no row has.
absl::StatusOr<DType> DTypeFromName(absl::string_view name);

// Whether no value of the elements is infinite or no number. True of kMantissa and kCode.
bool AllFinite(DType dtype, absl::Span<const std::byte> elements);

}  // namespace runnel
