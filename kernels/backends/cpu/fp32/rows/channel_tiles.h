#pragma once

// Rows of channels cut into tiles of registers. Only for the kernel templates.

#include <cstdint>

namespace runnel::fp32 {

// Calls body.operator()<VECTORS, PART>(channel, lanes) so that the tiles cover all channels; a tile
// is VECTORS whole registers, or (PART) the first `lanes` lanes of one.
template <typename V, typename Body>
[[gnu::always_inline]] inline void ForChannels(int64_t channels, const Body& body) {
  int64_t c = 0;
  for (; c + 4 * V::kWidth <= channels; c += 4 * V::kWidth) {
    body.template operator()<4, false>(c, V::kWidth);
  }
  for (; c + V::kWidth <= channels; c += V::kWidth) {
    body.template operator()<1, false>(c, V::kWidth);
  }
  if (c < channels) body.template operator()<1, true>(c, static_cast<int>(channels - c));
}

template <typename V, bool PART>
[[gnu::always_inline]] inline typename V::Reg LoadLanes(const float* p, int lanes) {
  if constexpr (PART) return V::LoadPart(p, lanes);
  return V::Load(p);
}
template <typename V, bool PART>
[[gnu::always_inline]] inline void StoreLanes(float* p, typename V::Reg v, int lanes) {
  if constexpr (PART) {
    V::StorePart(p, v, lanes);
  } else {
    V::Store(p, v);
  }
}

// N registers side by side.
template <typename V, int N, bool PART>
struct Lanes {
  typename V::Reg v[N];

  [[gnu::always_inline]] inline void Zero() {
    for (int i = 0; i < N; ++i) v[i] = V::Zero();
  }
  [[gnu::always_inline]] inline void Load(const float* p, int lanes) {
    for (int i = 0; i < N; ++i) v[i] = LoadLanes<V, PART>(p + i * V::kWidth, lanes);
  }
  [[gnu::always_inline]] inline void Store(float* p, int lanes) const {
    for (int i = 0; i < N; ++i) StoreLanes<V, PART>(p + i * V::kWidth, v[i], lanes);
  }
};

}  // namespace runnel::fp32
