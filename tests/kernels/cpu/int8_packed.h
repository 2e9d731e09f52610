#pragma once

// A product whose right side is packed once for many: what an executable could keep for each
// version of its weights. For tests and benches of the kernels.

#include <algorithm>

#include "kernels/backends/cpu/int8/gather_conv.h"
#include "kernels/backends/cpu/int8/int8_conv.h"

namespace runnel::cpu {

inline int64_t Int8PackedBytes(const Int8Kernels& kernels, int64_t n, int64_t k) {
  return AllPanelsBytes(kernels, GatherProblemOf(LinearShape(1, n, k), false));
}

// b int8[n][k]. `packed` is 64-byte aligned and belongs to one row of kernels.
inline void Int8PackB(const Int8Kernels& kernels, int64_t n, int64_t k, const int8_t* b,
                      std::byte* packed) {
  PackAllPanels(kernels, GatherProblemOf(LinearShape(1, n, k), false), b, packed);
}

// c int32[m][n] = a int8[m][k] * transposed b; the context's workspace as for the forward.
inline void Int8GemmPacked(const Int8Context& context, int64_t m, int64_t n, int64_t k,
                           const int8_t* a, const std::byte* packed, int32_t* c, int32_t* max_abs) {
  alignas(64) uint32_t lanes[kMaxLanes] = {};
  RunGather(context, GatherProblemOf(LinearShape(m, n, k), false),
            {.source = a, .packed = packed, .out = c, .max_lanes = lanes});
  *max_abs = static_cast<int32_t>(*std::max_element(lanes, lanes + kMaxLanes));
}

}  // namespace runnel::cpu
