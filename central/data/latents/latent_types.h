#pragma once

// How a latent, what the front of a model gives for a sample, is kept: a row a type. Pure functions;
// any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel {

struct LatentType {
  absl::string_view name;
  int64_t element_bytes;
  int64_t sample_bytes;  // beside the elements: scale and zero
  // Both work on one sample of finite values; codes has Bytes(values.size()) bytes.
  void (*encode)(absl::Span<const float> values, char* codes);
  void (*decode)(const char* codes, absl::Span<float> values);

  int64_t Bytes(int64_t elements) const { return elements * element_bytes + sample_bytes; }
};

// fp32: exact. fp16: rounded, beyond +-65504 the largest. int8: zero + scale * code, code 0 to 255,
// over the sample's range: within half a scale.
absl::Span<const LatentType> LatentTypes();
// InvalidArgument lists what there is.
absl::StatusOr<const LatentType*> FindLatentType(absl::string_view name);
std::vector<std::string> LatentTypeNames();

}  // namespace runnel
