#pragma once

// Element types of tensors, in memory and on the wire. The numbers are wire format: never reuse
// one.

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

enum class DType : uint8_t {
  kFloat32 = 1,
  kFloat16 = 2,
  kInt8 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUInt8 = 6
};

// Bytes of one element.
size_t SizeOf(DType dtype);

// "f32", "f16", "i8", "i32", "i64", "u8".
absl::string_view Name(DType dtype);

// InvalidArgument for a number that names no type (bytes from outside).
absl::StatusOr<DType> DTypeFromNumber(uint32_t number);

}  // namespace runnel
