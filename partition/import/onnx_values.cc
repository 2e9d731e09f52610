#include "partition/import/onnx_values.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/shape.h"

namespace runnel::import {
namespace {

template <typename T>
bool CopyRaw(const std::string& raw, size_t count, std::vector<float>& values) {
  if (raw.size() != count * sizeof(T)) return false;
  values.resize(count);
  for (size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
  return true;
}

// The numbers lie in raw_data or in the field of their type.
template <typename T, typename Field>
bool Copy(const onnx::TensorProto& tensor, const Field& field, size_t count,
          std::vector<float>& values) {
  if (!tensor.raw_data().empty()) return CopyRaw<T>(tensor.raw_data(), count, values);
  if (static_cast<size_t>(field.size()) != count) return false;
  values.assign(field.begin(), field.end());
  return true;
}

}  // namespace

absl::StatusOr<Constant> ReadTensor(const onnx::TensorProto& tensor) {
  Constant constant;
  constant.dims.assign(tensor.dims().begin(), tensor.dims().end());
  RUNNEL_RETURN_IF_ERROR(constant.dims.empty() ? absl::OkStatus()
                                               : Shape::Create(constant.dims).status());
  size_t count = 1;
  for (const int64_t dim : constant.dims) count *= static_cast<size_t>(dim);
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL)
    return absl::InvalidArgumentError("its numbers lie in another file; export them into this one");
  bool is_read = false;
  switch (tensor.data_type()) {
    case onnx::TensorProto::FLOAT:
      is_read = Copy<float>(tensor, tensor.float_data(), count, constant.values);
      break;
    case onnx::TensorProto::DOUBLE:
      is_read = Copy<double>(tensor, tensor.double_data(), count, constant.values);
      break;
    case onnx::TensorProto::INT64:
      constant.is_integral = true;
      is_read = Copy<int64_t>(tensor, tensor.int64_data(), count, constant.values);
      break;
    case onnx::TensorProto::INT32:
      constant.is_integral = true;
      is_read = Copy<int32_t>(tensor, tensor.int32_data(), count, constant.values);
      break;
    case onnx::TensorProto::BOOL:
      is_read = Copy<bool>(tensor, tensor.int32_data(), count, constant.values);
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("numbers of type ", tensor.data_type(),
                       "; float, double, int32, int64 and bool are read"));
  }
  if (!is_read) return absl::InvalidArgumentError("has not as many numbers as its shape");
  return constant;
}

}  // namespace runnel::import
