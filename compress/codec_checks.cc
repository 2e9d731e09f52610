#include "compress/codec_checks.h"

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

absl::Status CheckTensor(DType dtype, const Shape& shape, size_t tensor_bytes) {
  if (dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat("codec: tensor is ", Name(dtype), ", needs f32"));
  }
  if (shape.elements() < 1) return absl::InvalidArgumentError("codec: tensor has no elements");
  if (tensor_bytes != static_cast<uint64_t>(shape.elements()) * sizeof(float)) {
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

absl::Status CheckEncodeArguments(const TensorView& x, size_t payload_bytes, Bytes expected) {
  absl::Status status = CheckTensor(x.dtype, x.shape, x.bytes.size());
  return status.ok() ? CheckPayload(payload_bytes, expected, x.shape) : status;
}

absl::Status CheckDecodeArguments(size_t payload_bytes, Bytes expected,
                                  const MutableTensorView& out) {
  absl::Status status = CheckTensor(out.dtype, out.shape, out.bytes.size());
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

void StoreFloat(float value, std::byte* to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(bits >> (8 * i));
}

float LoadFloat(const std::byte* from) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= std::to_integer<uint32_t>(from[i]) << (8 * i);
  return std::bit_cast<float>(bits);
}

}  // namespace runnel
