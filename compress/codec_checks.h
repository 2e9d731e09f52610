#pragma once

// Checks of arguments that all codecs share, and the little-endian fields of payload headers. Pure
// functions; any thread.

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/base/ids.h"
#include "proto/base/tensor/tensor_view.h"

namespace runnel {

// Bit pattern of FP32 infinity: magnitudes from here on are infinite or NaN.
inline constexpr uint32_t kInfinityBits = 0x7F800000u;

// InvalidArgument unless x is of `dtype` with at least one element and as many bytes as its shape
// says, and `payload_bytes` is `expected`.
absl::Status CheckEncodeArguments(const TensorView& x, size_t payload_bytes, Bytes expected,
                                  DType dtype = DType::kFloat32);

// Checks a decoder's output as CheckEncodeArguments checks an encoder's input.
absl::Status CheckDecodeArguments(size_t payload_bytes, Bytes expected,
                                  const MutableTensorView& out, DType dtype = DType::kFloat32);

// InvalidArgument that names the first NaN or infinite element. There must be one.
absl::Status NonFiniteError(const float* x, size_t n);

// RestoreState of a stateless encoder: InvalidArgument unless `state` is empty.
absl::Status CheckNoState(absl::string_view state);

void StoreFloat(float value, std::byte* to);
float LoadFloat(const std::byte* from);
void StoreInt32(int32_t value, std::byte* to);
int32_t LoadInt32(const std::byte* from);

}  // namespace runnel
