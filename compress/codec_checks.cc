#include "compress/codec_checks.h"

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

absl::Status CheckTensor(DType dtype, DType needed, const Shape& shape, size_t tensor_bytes) {
  if (dtype != needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec: tensor is ", Name(dtype), ", needs ", Name(needed)));
  }
  if (shape.elements() < 1) return absl::InvalidArgumentError("codec: tensor has no elements");
  if (tensor_bytes != static_cast<uint64_t>(shape.elements()) * SizeOf(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec: tensor of shape ", shape.ToString(), " has ", tensor_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckPayload(size_t payload_bytes, Bytes expected, const Shape& shape) {
  if (payload_bytes != static_cast<uint64_t>(expected.value())) {
    return absl::InvalidArgumentError(absl::StrCat("codec: payload has ", payload_bytes,
                                                   " bytes, shape ", shape.ToString(), " needs ",
                                                   expected.value()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckEncodeArguments(const TensorView& x, size_t payload_bytes, Bytes expected,
                                  DType dtype) {
  absl::Status status = CheckTensor(x.dtype, dtype, x.shape, x.bytes.size());
  return status.ok() ? CheckPayload(payload_bytes, expected, x.shape) : status;
}

absl::Status CheckDecodeArguments(size_t payload_bytes, Bytes expected,
                                  const MutableTensorView& out, DType dtype) {
  absl::Status status = CheckTensor(out.dtype, dtype, out.shape, out.bytes.size());
  return status.ok() ? CheckPayload(payload_bytes, expected, out.shape) : status;
}

absl::Status NonFiniteError(const float* x, size_t n) {
  size_t e = 0;
  while (e < n && std::isfinite(x[e])) ++e;
  const char* what = e < n && std::isnan(x[e]) ? "NaN" : "infinite";
  return absl::InvalidArgumentError(absl::StrCat("codec: element ", e, " is ", what));
}

absl::Status CheckNoState(absl::string_view state) {
  if (state.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("codec: ", state.size(), " bytes of state for an encoder that has none"));
}

void StoreInt32(int32_t value, std::byte* to) {
  const auto bits = static_cast<uint32_t>(value);
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(bits >> (8 * i));
}

int32_t LoadInt32(const std::byte* from) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= std::to_integer<uint32_t>(from[i]) << (8 * i);
  return static_cast<int32_t>(bits);
}

void StoreFloat(float value, std::byte* to) { StoreInt32(std::bit_cast<int32_t>(value), to); }

float LoadFloat(const std::byte* from) { return std::bit_cast<float>(LoadInt32(from)); }

}  // namespace runnel
