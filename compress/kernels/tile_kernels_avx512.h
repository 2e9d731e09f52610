#pragma once

// What encoding and decoding of tiles with AVX-512 share. Whole tiles stay in registers; the last
// one, if it is narrower, goes through the loops that all instruction sets have.
//
// Why the bytes are the same: floating additions have the same operands in the same order; a fused
// multiply-add stands only where the product is exact (times +-1 or a power of two, or of numbers
// with few bits); what is done in integers is exact in FP32 too.
//
// Only for the two files of this name: functions are static and carry their target.

#include <immintrin.h>

#define RUNNEL_TILE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,popcnt")))
#define RUNNEL_TILE_OWN_LOOPS

#include "compress/kernels/tile_loops.inc"

namespace runnel {

void Avx512DecodeTiles(const std::byte* tiles, size_t n, const TileCoding& coding, float* out);

namespace {

constexpr float kForwardScale = 0x1p-4f;  // scale of 256 coefficients, as in Rotate

constexpr int kVectors = 16;  // vectors of one tile in FP32
constexpr size_t kTilesAtOnce = 4;

// Signs of kTilesAtOnce tiles: bit i % 32 of word i / 32.
struct alignas(64) Signs {
  uint32_t words[kTilesAtOnce][8];

  RUNNEL_TILE_INLINE __mmask16 Of(const Signs& signs, size_t tile, int vector) {
    uint16_t bits;
    std::memcpy(&bits, reinterpret_cast<const char*>(signs.words[tile]) + 2 * vector, sizeof(bits));
    return bits;
  }
};

// One round of Philox4x32 on eight blocks: a word in the low half of each 64-bit lane, which is
// what a widening multiplication reads; high halves hold leftovers.
struct Blocks {
  __m512i c[4];
};

RUNNEL_TILE_INLINE void Round(__m512i k0, __m512i k1, Blocks* b) {
  const __m512i p0 = _mm512_mul_epu32(b->c[0], _mm512_set1_epi64(0xD2511F53u));
  const __m512i p1 = _mm512_mul_epu32(b->c[2], _mm512_set1_epi64(0xCD9E8D57u));
  const __m512i high0 = _mm512_shuffle_epi32(p0, static_cast<_MM_PERM_ENUM>(0xB1));
  const __m512i high1 = _mm512_shuffle_epi32(p1, static_cast<_MM_PERM_ENUM>(0xB1));
  b->c[0] = _mm512_ternarylogic_epi64(high1, b->c[1], k0, 0x96);
  b->c[2] = _mm512_ternarylogic_epi64(high0, b->c[3], k1, 0x96);
  b->c[1] = p1;
  b->c[3] = p0;
}

// Seven rounds on kCount times eight blocks.
template <int kCount>
RUNNEL_TILE_INLINE void Philox(std::array<uint32_t, 2> key, Blocks* blocks) {
#pragma GCC unroll 7
  for (int round = 0; round < 7; ++round) {
    const __m512i k0 = _mm512_set1_epi64(key[0] + static_cast<uint32_t>(round) * 0x9E3779B9u);
    const __m512i k1 = _mm512_set1_epi64(key[1] + static_cast<uint32_t>(round) * 0xBB67AE85u);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) Round(k0, k1, &blocks[i]);
  }
}

// Words of the low halves of `even` and `odd` in turns.
RUNNEL_TILE_INLINE __m512i Interleave(__m512i even, __m512i odd) {
  return _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, static_cast<_MM_PERM_ENUM>(0xA0));
}

// Draws the signs of the tiles from `tile` on.
RUNNEL_TILE_INLINE void DrawSigns(const TileCoding& coding, size_t tile, Signs* signs) {
  // Two blocks a tile. Unpacking below puts even lanes before odd ones.
  const __m512i first = _mm512_set1_epi64(static_cast<int64_t>(tile));
  Blocks b;
  b.c[0] = _mm512_add_epi64(first, _mm512_setr_epi64(0, 2, 0, 2, 1, 3, 1, 3));
  b.c[1] = _mm512_setr_epi64(0, 0, 1, 1, 0, 0, 1, 1);
  b.c[2] = b.c[3] = _mm512_setzero_si512();
  Philox<1>(coding.sign_key, &b);
  const __m512i c01 = Interleave(b.c[0], b.c[1]), c23 = Interleave(b.c[2], b.c[3]);
  _mm512_store_si512(signs->words[0], _mm512_unpacklo_epi64(c01, c23));
  _mm512_store_si512(signs->words[2], _mm512_unpackhi_epi64(c01, c23));
}

}  // namespace
}  // namespace runnel
