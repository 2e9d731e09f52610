// Decoding tiles with AVX-512 (tile_kernels_avx512.h).

#if defined(__x86_64__)

#include "compress/kernels/tile_kernels_avx512.h"

namespace runnel {
namespace {

// Codes as bytes, in element order.
RUNNEL_TILE_INLINE void UnpackTile(const std::byte* planes, int bits, __m512i* codes) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) codes[i] = _mm512_setzero_si512();
  for (int bit = bits - 1; bit >= 0; --bit) {
    const __m512i weight = _mm512_set1_epi8(static_cast<char>(1 << bit));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i, planes += 8) {
      uint64_t word;
      std::memcpy(&word, planes, sizeof(word));
      codes[i] = _mm512_mask_add_epi8(codes[i], word, codes[i], weight);
    }
  }
}

RUNNEL_TILE_INLINE void Butterfly16(__m512i* a, __m512i* b) {
  const __m512i sum = _mm512_add_epi16(*a, *b);
  *b = _mm512_sub_epi16(*a, *b);
  *a = sum;
}

// The Hadamard matrix times the codes but for index bit b0, within 16 bits: at most 128 * 255.
//
// Where the bits b7..b0 of an element's index are. At first: v[4 b3 + 2 b7 + b6], 128-bit lane
// (b5, b4), word (b2, b1, b0). A butterfly of two vectors that first exchanges a bit of a lane or
// of a word for the one in which the vectors differ does one bit more. At the end sums[4 b5 + 2 b4
// + b6], lane (b3, b2), word (b7, b1, b0).
RUNNEL_TILE_INLINE void RotateCodes(const __m512i* codes, __m512i* sums) {
  const __m512i zero = _mm512_setzero_si512();
  __m512i v[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // i: (b7, b6)
    v[i] = _mm512_unpacklo_epi8(codes[i], zero);
    v[4 + i] = _mm512_unpackhi_epi8(codes[i], zero);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) Butterfly16(&v[i], &v[4 + i]);  // b3
#pragma GCC unroll 2
  for (int half = 0; half < 8; half += 4) {
    Butterfly16(&v[half], &v[half + 1]);  // b6
    Butterfly16(&v[half + 2], &v[half + 3]);
    Butterfly16(&v[half], &v[half + 2]);  // b7
    Butterfly16(&v[half + 1], &v[half + 3]);
  }
  __m512i w[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // i: (b3, b6); b2 against b7
    const int at = i / 2 * 4 + i % 2;
    w[at] = _mm512_unpacklo_epi64(v[at], v[at + 2]);
    w[at + 2] = _mm512_unpackhi_epi64(v[at], v[at + 2]);
    Butterfly16(&w[at], &w[at + 2]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // i: (b3, b6); b4 against b2: lane (b2, b5)
    const int at = i / 2 * 4 + i % 2;
    v[at] = _mm512_shuffle_i64x2(w[at], w[at + 2], 0x88);
    v[at + 2] = _mm512_shuffle_i64x2(w[at], w[at + 2], 0xDD);
    Butterfly16(&v[at], &v[at + 2]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // i: (b4, b6); b5 against b3: lane (b3, b2)
    w[i] = _mm512_shuffle_i64x2(v[i], v[i + 4], 0x88);
    w[i + 4] = _mm512_shuffle_i64x2(v[i], v[i + 4], 0xDD);
    Butterfly16(&w[i], &w[i + 4]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // b1
    const __m512i partner = _mm512_shuffle_epi32(w[i], static_cast<_MM_PERM_ENUM>(0xB1));
    sums[i] = _mm512_mask_sub_epi16(_mm512_add_epi16(w[i], partner), 0xCCCCCCCC, partner, w[i]);
  }
}

// 16 sums of 32 bits times `step`, signs flipped where `negative` says so, plus the centre.
// Products are exact: 15 bits times the 8 of a bfloat16.
RUNNEL_TILE_INLINE void StoreSixteen(__m512i sums, __m512 step, __m512 centre, __mmask16 negative,
                                     float* out) {
  const __m512 minus = _mm512_sub_ps(_mm512_set1_ps(-0.0f), step);
  const __m512 factor = _mm512_mask_blend_ps(negative, step, minus);
  _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), factor, centre));
}

RUNNEL_TILE_INLINE void DecodeRotated(const std::byte* in, size_t at, const Signs& signs, int bits,
                                      float* out) {
  const __m512 centre = _mm512_set1_ps(LoadBfloat16(in));
  const __m512 step = _mm512_set1_ps(LoadBfloat16(in + 2) * 0x1p-4f);
  __m512i codes[4], sums[8];
  UnpackTile(in + kTileHeaderBytes, bits, codes);
  RotateCodes(codes, sums);
  const __m512i plus = _mm512_set1_epi32(0x00010001);
  const __m512i mixed = _mm512_set1_epi32(static_cast<int>(0xFFFF0001u));
  // Codes less top / 2 give the same but in element 0, by 256 top / 2.
  const __m512i first = _mm512_maskz_set1_epi32(1, 128 * ((1 << bits) - 1));
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    __m512i even = _mm512_madd_epi16(sums[i], plus);  // b0, and to 32 bits
    const __m512i odd = _mm512_madd_epi16(sums[i], mixed);
    if (i == 0) even = _mm512_sub_epi32(even, first);
    const int vector = (i & 1) * 4 + (i >> 2 & 1) * 2 + (i >> 1 & 1);  // the vector with b7 = 0
    StoreSixteen(_mm512_unpacklo_epi32(even, odd), step, centre, Signs::Of(signs, at, vector),
                 out + 16 * vector);
    StoreSixteen(_mm512_unpackhi_epi32(even, odd), step, centre, Signs::Of(signs, at, vector + 8),
                 out + 16 * (vector + 8));
  }
}

RUNNEL_TILE_INLINE void DecodePlain(const std::byte* in, int bits, float* out) {
  const __m512 centre = _mm512_set1_ps(LoadBfloat16(in));
  const __m512 step = _mm512_set1_ps(LoadBfloat16(in + 2));
  const __m512 middle = _mm512_set1_ps(static_cast<float>((1 << bits) - 1) * 0.5f);
  __m512i codes[4];
  UnpackTile(in + kTileHeaderBytes, bits, codes);
  alignas(64) uint8_t bytes[kTileElements];
  for (int i = 0; i < 4; ++i) _mm512_store_si512(bytes + 64 * i, codes[i]);
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j) {
    const __m128i sixteen = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes + 16 * j));
    const __m512 code = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sixteen));
    _mm512_storeu_ps(out + 16 * j, _mm512_fmadd_ps(_mm512_sub_ps(code, middle), step, centre));
  }
}

template <bool kRotate>
RUNNEL_TILE void DecodeAll(const std::byte* tiles, size_t n, const TileCoding& coding, float* out) {
  const size_t whole = n / kTileElements;
  Signs signs;
  for (size_t tile = 0; tile < whole; ++tile, out += kTileElements) {
    const size_t at = tile % kTilesAtOnce;
    if (kRotate && at == 0) DrawSigns(coding, tile, &signs);
    if (LoadBfloat16(tiles + 2) == 0.0f) {  // zeros have signs: not for integers
      DecodeTile(tiles, kTileElements, tile, kTileElements, coding, out);
    } else if (kRotate) {
      DecodeRotated(tiles, at, signs, coding.bits, out);
    } else {
      DecodePlain(tiles, coding.bits, out);
    }
    tiles += TileBytes(kTileElements, coding.bits);
  }
  const size_t rest = n % kTileElements;
  if (rest > 0) DecodeTile(tiles, rest, whole, TileWidth(rest), coding, out);
}

}  // namespace

RUNNEL_TILE void Avx512DecodeTiles(const std::byte* tiles, size_t n, const TileCoding& coding,
                                   float* out) {
  (coding.rotate ? DecodeAll<true> : DecodeAll<false>)(tiles, n, coding, out);
}

}  // namespace runnel

#endif  // defined(__x86_64__)
