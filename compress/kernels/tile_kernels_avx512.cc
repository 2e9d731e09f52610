// Encoding tiles with AVX-512 (tile_kernels_avx512.h).

#if defined(__x86_64__)

#include "compress/kernels/tile_kernels_avx512.h"

namespace runnel {
namespace {

// -1 where the mask has a bit, else +1.
RUNNEL_TILE_INLINE __m512 ButterflySigns(__mmask16 minus) {
  return _mm512_mask_blend_ps(minus, _mm512_set1_ps(1.0f), _mm512_set1_ps(-1.0f));
}

// Within each vector, distances 1, 2, 4 and 8: partner + (+-1) v.
RUNNEL_TILE_INLINE void RotateLanes(__m512* y) {
  const __m512 s1 = ButterflySigns(0xAAAA), s2 = ButterflySigns(0xCCCC);
  const __m512 s4 = ButterflySigns(0xF0F0), s8 = ButterflySigns(0xFF00);
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j) {
    __m512 v = y[j];
    v = _mm512_fmadd_ps(v, s1, _mm512_permute_ps(v, 0xB1));
    v = _mm512_fmadd_ps(v, s2, _mm512_permute_ps(v, 0x4E));
    v = _mm512_fmadd_ps(v, s4, _mm512_shuffle_f32x4(v, v, 0xB1));
    y[j] = _mm512_fmadd_ps(v, s8, _mm512_shuffle_f32x4(v, v, 0x4E));
  }
}

// Vectors against vectors: distances 16 to 128. A template, so that indices are constants and the
// vectors stay in registers.
template <int kDistance>
RUNNEL_TILE_INLINE void RotateVectors(__m512* y) {
#pragma GCC unroll 8
  for (int i = 0; i < kVectors / 2; ++i) {
    const int j = i / kDistance * 2 * kDistance + i % kDistance;
    const __m512 a = y[j], b = y[j + kDistance];
    y[j] = _mm512_add_ps(a, b);
    y[j + kDistance] = _mm512_sub_ps(a, b);
  }
  if constexpr (2 * kDistance < kVectors) RotateVectors<2 * kDistance>(y);
}

// The sum of 16 lanes in the order of Mean.
RUNNEL_TILE_INLINE float SumLanes16(__m512 lanes) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

RUNNEL_TILE_INLINE float TileMean(const float* x) {
  __m512 lanes = _mm512_setzero_ps();
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j) lanes = _mm512_add_ps(lanes, _mm512_loadu_ps(x + 16 * j));
  return SumLanes16(lanes) / static_cast<float>(kTileElements);
}

RUNNEL_TILE_INLINE float TileMiddle(const float* x) {
  __m512 low = _mm512_set1_ps(x[0]), high = low;
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j) {
    const __m512 v = _mm512_loadu_ps(x + 16 * j);
    low = _mm512_min_ps(v, low);
    high = _mm512_max_ps(v, high);
  }
  const float least = _mm512_reduce_min_ps(low), most = _mm512_reduce_max_ps(high);
  // The sign of a zero depends on the order.
  if (least == 0.0f && most == 0.0f) return Middle(x, kTileElements);
  return (least + most) * 0.5f;
}

RUNNEL_TILE_INLINE float MaxOf(const __m512* y) {
  __m512 most[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j) most[j % 2] = _mm512_range_ps(most[j % 2], y[j], 0b1011);
  return _mm512_reduce_max_ps(_mm512_max_ps(most[0], most[1]));
}

// The sum of 8 lanes in the order of MeanSquare.
RUNNEL_TILE_INLINE double SumLanes8(__m512d lanes) {
  const __m256d four =
      _mm256_add_pd(_mm512_castpd512_pd256(lanes), _mm512_extractf64x4_pd(lanes, 1));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(two) + _mm_cvtsd_f64(_mm_unpackhi_pd(two, two));
}

// Mean squares of kTilesAtOnce tiles: each is one chain of additions.
RUNNEL_TILE_INLINE void MeanSquares(const Tile* tiles, double* mean_squares) {
  __m512d lanes[kTilesAtOnce];
#pragma GCC unroll 4
  for (size_t t = 0; t < kTilesAtOnce; ++t) lanes[t] = _mm512_setzero_pd();
  for (size_t i = 0; i < kTileElements; i += 8) {
#pragma GCC unroll 4
    for (size_t t = 0; t < kTilesAtOnce; ++t) {
      const __m512d y = _mm512_cvtps_pd(_mm256_load_ps(tiles[t].y + i));
      lanes[t] = _mm512_fmadd_pd(y, y, lanes[t]);
    }
  }
#pragma GCC unroll 4
  for (size_t t = 0; t < kTilesAtOnce; ++t) {
    mean_squares[t] = SumLanes8(lanes[t]) / static_cast<double>(kTileElements);
  }
}

// Encodable, of `count` whole tiles.
RUNNEL_TILE_INLINE bool EncodableTiles(const float* x, size_t count) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i most = _mm512_setzero_si512();
  for (size_t i = 0; i < count * kTileElements; i += 16) {
    const __m512i bits = _mm512_castps_si512(_mm512_loadu_ps(x + i));
    most = _mm512_max_epu32(most, _mm512_and_si512(bits, magnitude));
  }
  const __m512i limit = _mm512_set1_epi32(static_cast<int>(BitsOf(kMaxTileMagnitude)));
  return _mm512_cmpgt_epu32_mask(most, limit) == 0;
}

// 16 random bits for each element, as DrawHalves draws them.
RUNNEL_TILE_INLINE void DrawTile(const CounterRandom& random, size_t tile, __m512i* halves) {
  Blocks b[4];
  const __m512i first = _mm512_set1_epi64(static_cast<uint32_t>(kGroup * tile));
  const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    b[i].c[0] =
        _mm512_add_epi64(_mm512_add_epi64(first, even), _mm512_set1_epi64(i / 2 * 16 + i % 2));
    b[i].c[1] = _mm512_setzero_si512();
    b[i].c[2] = _mm512_set1_epi64(random.sequence_words()[0]);
    b[i].c[3] = _mm512_set1_epi64(random.sequence_words()[1]);
  }
  Philox<4>(random.key(), b);
  const __m512i low = _mm512_set1_epi32(0xFFFF);
#pragma GCC unroll 4
  for (int word = 0; word < 4; ++word) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i both = Interleave(b[2 * half].c[word], b[2 * half + 1].c[word]);
      halves[4 * word + half] = _mm512_and_si512(both, low);
      halves[4 * word + 2 + half] = _mm512_srli_epi32(both, 16);
    }
  }
}

// Codes of 64 elements as bytes. What Quantize holds within 0..top before it cuts off is held here
// afterwards: cutting off is monotone and leaves 0 and top as they are.
RUNNEL_TILE_INLINE __m512i QuantizeSixtyFour(const float* y, __m512 inverse, __m512 middle,
                                             __m512i top, const __m512i* halves) {
  __m512i q[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 u = _mm512_add_ps(_mm512_mul_ps(_mm512_load_ps(y + 16 * i), inverse), middle);
    const __m512 v = _mm512_fmadd_ps(u, _mm512_set1_ps(65536.0f), _mm512_set1_ps(0.5f));
    q[i] = _mm512_srai_epi32(_mm512_add_epi32(_mm512_cvttps_epi32(v), halves[i]), 16);
  }
  // Packing works within 128-bit lanes; the permutation puts the order right.
  const __m512i packed =
      _mm512_packus_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_min_epu8(_mm512_permutexvar_epi32(order, packed), top);
}

RUNNEL_TILE_INLINE void PackTile(const __m512i* codes, int bits, std::byte* planes) {
  for (int bit = bits - 1; bit >= 0; --bit) {
    const __m512i mask = _mm512_set1_epi8(static_cast<char>(1 << bit));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i, planes += 8) {
      const uint64_t word = _mm512_test_epi8_mask(codes[i], mask);
      std::memcpy(planes, &word, sizeof(word));
    }
  }
}

// x less its centre, rotated; returns the largest magnitude. `at`: the tile's place among the
// signs. Without kScale all of it is 16 times as large.
template <bool kRotate, bool kScale>
RUNNEL_TILE_INLINE float Centred(const float* x, float centre, const Signs& signs, size_t at,
                                 Tile* t) {
  const __m512 c = _mm512_set1_ps(centre);
  __m512 y[kVectors];
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j) {
    const __m512 v = _mm512_loadu_ps(x + 16 * j);
    y[j] = _mm512_sub_ps(v, c);
    if (kRotate) y[j] = _mm512_mask_sub_ps(y[j], Signs::Of(signs, at, j), c, v);
  }
  if (kRotate) {
    RotateLanes(y);
    RotateVectors<1>(y);
  }
  if (kRotate && kScale) {
    const __m512 scale = _mm512_set1_ps(kForwardScale);
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) y[j] = _mm512_mul_ps(y[j], scale);
  }
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j) _mm512_store_ps(t->y + 16 * j, y[j]);
  return MaxOf(y);
}

RUNNEL_TILE_INLINE void WriteTile(const Tile& t, float inverse_step, int bits,
                                  const __m512i* halves, std::byte* planes) {
  const int top = (1 << bits) - 1;
  const __m512i tops = _mm512_set1_epi8(static_cast<char>(top));
  const __m512 inverse = _mm512_set1_ps(inverse_step);
  const __m512 middle = _mm512_set1_ps(static_cast<float>(top) * 0.5f);
  __m512i codes[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    codes[i] = QuantizeSixtyFour(t.y + 64 * i, inverse, middle, tops, halves + 4 * i);
  }
  PackTile(codes, bits, planes);
}

// `count` of kTilesAtOnce tiles, from `first` on. Step by step for all of them: what one waits for
// hides behind the others.
template <bool kRotate, bool kRandom>
RUNNEL_TILE_INLINE bool EncodeSeveral(const float* x, size_t first, size_t count,
                                      const TileCoding& coding, const CounterRandom* random,
                                      std::byte* out) {
  Signs signs;
  Tile tiles[kTilesAtOnce];
  float centre[kTilesAtOnce], step[kTilesAtOnce];
  // Without squares the scaling by a power of two can wait: the digits below 2^-126 that FP32 then
  // keeps are less than half a place of the sum that they enter.
  const float scale = kRotate && kRandom ? kForwardScale : 1.0f;
  if (kRotate) DrawSigns(coding, first, &signs);
  if (!EncodableTiles(x, count)) return false;
  for (size_t t = 0; t < count; ++t) {
    const float* from = x + t * kTileElements;
    centre[t] = ToBfloat16(kRotate ? TileMean(from) : TileMiddle(from));
  }
  for (size_t t = 0; t < count; ++t) {
    const float most =
        Centred<kRotate, !kRandom>(x + t * kTileElements, centre[t], signs, t, &tiles[t]);
    step[t] = CoveringStep(most * scale, coding.bits);
  }
  if (kRotate && !kRandom) {
    double mean_squares[kTilesAtOnce];
    for (size_t t = count; t < kTilesAtOnce; ++t) tiles[t] = tiles[0];
    MeanSquares(tiles, mean_squares);
    for (size_t t = 0; t < count; ++t) {
      const float normal = NormalStep(mean_squares[t], coding.bits);
      step[t] = normal < step[t] ? normal : step[t];
    }
  }
  __m512i halves[kVectors];
#pragma GCC unroll 16
  for (int j = 0; j < kVectors; ++j) halves[j] = _mm512_set1_epi32(0x8000);
  for (size_t t = 0; t < count; ++t, out += TileBytes(kTileElements, coding.bits)) {
    if (step[t] < kMinTileStep) step[t] = 0;
    StoreBfloat16(centre[t], out);
    StoreBfloat16(step[t], out + 2);
    if (step[t] == 0.0f) {
      std::memset(out + kTileHeaderBytes, 0, kTileElements / 8 * coding.bits);
      continue;
    }
    if (kRandom) DrawTile(*random, first + t, halves);
    WriteTile(tiles[t], 1.0f / step[t] * scale, coding.bits, halves, out + kTileHeaderBytes);
  }
  return true;
}

template <bool kRotate, bool kRandom>
RUNNEL_TILE bool EncodeAll(const float* x, size_t n, const TileCoding& coding,
                           const CounterRandom* random, std::byte* tiles) {
  const size_t whole = n / kTileElements;
  for (size_t tile = 0; tile < whole; tile += kTilesAtOnce) {
    const size_t count = std::min(kTilesAtOnce, whole - tile);
    if (!EncodeSeveral<kRotate, kRandom>(x + tile * kTileElements, tile, count, coding, random,
                                         tiles)) {
      return false;
    }
    tiles += count * TileBytes(kTileElements, coding.bits);
  }
  const size_t rest = n % kTileElements;
  if (rest == 0) return true;
  const float* last = x + whole * kTileElements;
  if (!Encodable(last, rest)) return false;
  EncodeTile(last, rest, whole, TileWidth(rest), coding, random, tiles);
  return true;
}

RUNNEL_TILE bool EncodeTiles(const float* x, size_t n, const TileCoding& coding,
                             const CounterRandom* random, std::byte* tiles) {
  const bool is_random = random != nullptr;
  const auto encode = coding.rotate
                          ? (is_random ? EncodeAll<true, true> : EncodeAll<true, false>)
                          : (is_random ? EncodeAll<false, true> : EncodeAll<false, false>);
  return encode(x, n, coding, random, tiles);
}

}  // namespace

const TileKernels kAvx512TileKernels = {EncodeTiles, Avx512DecodeTiles};

}  // namespace runnel

#endif  // defined(__x86_64__)
