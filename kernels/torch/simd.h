#pragma once

// Vector types for loops over channels. A channel's arithmetic never crosses lanes and nothing is
// contracted, so the width does not show in the bytes.

#include <cstdint>
#include <cstring>

// Compiles a function for several instruction sets and picks one at load time. Not under
// sanitizers: the choice would run before they are ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RUNNEL_TORCH_SIMD __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RUNNEL_TORCH_SIMD
#endif
#define RUNNEL_TORCH_INLINE __attribute__((always_inline))

namespace runnel::torch_kernels {

using Float16Lanes = float __attribute__((vector_size(64)));
using Float8Lanes = float __attribute__((vector_size(32)));

// K vectors that lie side by side: a tile of channels.
template <typename V, int K>
struct Tile {
  static constexpr int kWidth = K * static_cast<int>(sizeof(V) / sizeof(float));
  V v[K];

  RUNNEL_TORCH_INLINE void Zero() {
    for (int k = 0; k < K; ++k) v[k] = V{};
  }
  RUNNEL_TORCH_INLINE void Load(const float* p) { std::memcpy(v, p, sizeof(v)); }
  RUNNEL_TORCH_INLINE void Store(float* p) const { std::memcpy(p, v, sizeof(v)); }
};

// Calls body.operator()<Tile>(channel) so that the tiles cover [begin, end).
template <typename Body>
RUNNEL_TORCH_INLINE inline void ForTiles(int64_t begin, int64_t end, Body&& body) {
  int64_t c = begin;
  for (; c + 64 <= end; c += 64) body.template operator()<Tile<Float16Lanes, 4>>(c);
  for (; c + 16 <= end; c += 16) body.template operator()<Tile<Float16Lanes, 1>>(c);
  for (; c + 8 <= end; c += 8) body.template operator()<Tile<Float8Lanes, 1>>(c);
  for (; c < end; ++c) body.template operator()<Tile<float, 1>>(c);
}

}  // namespace runnel::torch_kernels
