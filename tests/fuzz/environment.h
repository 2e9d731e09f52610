#pragma once

// RUNNEL_FUZZ_SEED and RUNNEL_FUZZ_FACTOR.

#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"

namespace runnel::fuzz {

inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  uint64_t value = otherwise;
  if (text != nullptr && !absl::SimpleAtoi(text, &value)) std::abort();
  return value;
}

}  // namespace runnel::fuzz
