#pragma once

// How many random cases a test draws.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace runnel {

// `usual`, times RUNNEL_CASES_PERCENT / 100 where that is set: fewer on an emulated processor, which is some twenty times
// slower, more where there is time. At least one.
inline uint64_t CaseCount(uint64_t usual) {
  const char* percent = std::getenv("RUNNEL_CASES_PERCENT");
  if (percent == nullptr) return usual;
  return std::max<uint64_t>(1, usual * std::strtoull(percent, nullptr, 10) / 100);
}

// Of a backend's row: a quarter on a processor that is emulated, or compiles each case.
inline uint64_t CaseCountOf(const std::string& backend, uint64_t usual) {
  const bool is_slow = backend.find("hexagon") != std::string::npos ||
                       backend.find("opencl") != std::string::npos;
  return CaseCount(is_slow ? std::max<uint64_t>(1, usual / 4) : usual);
}

}  // namespace runnel
