#include "proto/base/tensor/dtype.h"

#include "absl/strings/str_cat.h"

namespace runnel {

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
      return 2;
    case DType::kInt64:
      return 8;
    case DType::kInt8:
    case DType::kUInt8:
      return 1;
  }
  return 0;
}

absl::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "f32";
    case DType::kFloat16:
      return "f16";
    case DType::kInt8:
      return "i8";
    case DType::kInt32:
      return "i32";
    case DType::kInt64:
      return "i64";
    case DType::kUInt8:
      return "u8";
  }
  return "?";
}

absl::StatusOr<DType> DTypeFromNumber(uint32_t number) {
  if (number < 1 || number > 6) {
    return absl::InvalidArgumentError(absl::StrCat("dtype ", number, " is not known"));
  }
  return static_cast<DType>(number);
}

}  // namespace runnel
