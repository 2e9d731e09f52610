#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace runnel {

// Of little-endian FP32 values: none is infinite or no number.
inline bool AllFinite(absl::string_view bytes) {
  constexpr uint32_t kExponent = 0x7F800000;
  bool finite = true;
  for (size_t at = 0; at + sizeof(uint32_t) <= bytes.size(); at += sizeof(uint32_t)) {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, sizeof(bits));
    finite &= (bits & kExponent) != kExponent;
  }
  return finite;
}

}  // namespace runnel
