#pragma once

// Vectors whose parts change places.

#include "kernels/backends/hexagon/dsp/hvx.h"

namespace runnel::hexagon {

// The units of kUnit bytes of kCount vectors in turn: the first of each, the second of each, ...
// kCount * kUnit <= 128; as many units as vectors are transposed.
template <int kUnit, int kCount>
RUNNEL_INLINE void MixUnits(Vector* v) {
  if constexpr (kCount > 1) {
    Vector low[kCount / 2], high[kCount / 2];
    for (int i = 0; i < kCount / 2; ++i) {
      const VectorPair pair = Q6_W_vshuff_VVR(v[2 * i + 1], v[2 * i], -kUnit);
      low[i] = Q6_V_lo_W(pair);
      high[i] = Q6_V_hi_W(pair);
    }
    MixUnits<2 * kUnit, kCount / 2>(low);
    MixUnits<2 * kUnit, kCount / 2>(high);
    for (int i = 0; i < kCount / 2; ++i) {
      v[i] = low[i];
      v[kCount / 2 + i] = high[i];
    }
  }
}

// Four rows of 128 bytes as 128 words of four.
RUNNEL_INLINE Words Interleave(Vector r0, Vector r1, Vector r2, Vector r3) {
  Words words = {{r0, r1, r2, r3}};
  MixUnits<1, 4>(words.v);
  return words;
}

// put(j, the words j of 32 rows); load(i, rows) gives rows 8 * i.. of them. In groups of 8 rows,
// then of 4 groups: as many as the registers hold.
template <typename Load8, typename Put>
RUNNEL_INLINE void TransposeWords(const Load8& load, const Put& put) {
  Vector mixed[kVectorWords];
#pragma clang loop unroll(disable)
  for (int group = 0; group < 4; ++group) {
    Vector rows[8];
    load(group, rows);
    MixUnits<4, 8>(rows);
    for (int i = 0; i < 8; ++i) mixed[8 * group + i] = rows[i];
  }
#pragma clang loop unroll_count(4)
  for (int i = 0; i < 8; ++i) {
    Vector words[4] = {mixed[i], mixed[8 + i], mixed[16 + i], mixed[24 + i]};
    MixUnits<32, 4>(words);
    for (int j = 0; j < 4; ++j) put(4 * i + j, words[j]);
  }
}

}  // namespace runnel::hexagon
