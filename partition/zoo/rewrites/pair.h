#pragma once

// The operators of a pair that lora puts behind a linear operator, in this order. Private to the
// rewrites.

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

inline constexpr absl::string_view kPairDown = ".down";  // (rank, in)
inline constexpr absl::string_view kPairUp = ".up";      // (out, rank)
inline constexpr absl::string_view kPairSum = ".sum";    // of the linear operator and `up`
inline constexpr size_t kPairOps = 3;

inline bool IsPairOf(const LayerSpec& layer, size_t op, absl::string_view part) {
  return absl::EndsWith(layer.ops[op].name, part);
}

}  // namespace runnel
