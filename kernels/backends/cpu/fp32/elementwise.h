#pragma once

// Loops over all elements of an output, divided between threads: any layout, all operands alike.

#include <algorithm>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"

namespace runnel::fp32 {

inline constexpr int64_t kElementsPerThread = 1 << 14;  // that one thread takes at least

// body(begin, count) over all elements of the output.
template <typename Body>
absl::Status OverElements(const Call& call, int64_t count, const Body& body) {
  const int64_t chunks = (count + kElementsPerThread - 1) / kElementsPerThread;
  ParallelFor(call.machine, chunks, [&](int, int64_t first, int64_t last) {
    const int64_t begin = first * kElementsPerThread;
    body(begin, std::min(count, last * kElementsPerThread) - begin);
  });
  return absl::OkStatus();
}

// Of the output.
template <typename Body>
absl::Status OverElements(const Call& call, const Body& body) {
  return OverElements(call, call.out_shape(0).elements(), body);
}

inline absl::Status Unary(const Call& call, void (*kernel)(const float*, int64_t, float*)) {
  return OverElements(
      call, [&](int64_t at, int64_t count) { kernel(call.in(0) + at, count, call.out(0) + at); });
}

}  // namespace runnel::fp32
