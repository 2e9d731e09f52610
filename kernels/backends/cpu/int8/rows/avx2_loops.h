#pragma once

// Loops of the 256-bit rows: tiles of 16 columns, element-wise and depthwise loops. Included by the
// files of instruction sets only; all static.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/backends/cpu/int8/int8_kernels.h"
#include "kernels/backends/cpu/int8/rows/element_loops.h"

namespace runnel::cpu {

static constexpr int kAvx2Columns = 16;
static constexpr int kAvx2Group = 4;

// The end of a tile with all of its columns.
template <int kRows>
static void Avx2StoreRows(const Int8Tile& tile, const __m256i (&sums)[kRows][2]) {
  const auto load = [](const int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  };
  __m256i largest = _mm256_setzero_si256();
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      const int at = 8 * half;
      __m256i sum = sums[r][half];
      if (tile.start != nullptr) sum = _mm256_add_epi32(sum, load(tile.start + at));
      if (tile.addend != nullptr) sum = _mm256_add_epi32(sum, load(tile.addend[r] + at));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile.c[r] + at), sum);
      largest = _mm256_max_epu32(largest, _mm256_abs_epi32(sum));
    }
  }
  if (tile.max_lanes == nullptr) return;
  auto* lanes = reinterpret_cast<__m256i*>(tile.max_lanes);
  _mm256_storeu_si256(lanes, _mm256_max_epu32(_mm256_loadu_si256(lanes), largest));
}

// The end of a tile of any number of columns.
template <int kRows>
static void Avx2FinishTile(const Int8Tile& tile, const __m256i (&sums)[kRows][2]) {
  if (tile.columns == kAvx2Columns) return Avx2StoreRows(tile, sums);
  uint32_t largest = 0;
  for (int r = 0; r < kRows; ++r) {
    alignas(32) uint32_t row[kAvx2Columns];
    _mm256_store_si256(reinterpret_cast<__m256i*>(row), sums[r][0]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(row + 8), sums[r][1]);
    for (int j = 0; j < tile.columns; ++j) {
      uint32_t sum = row[j];
      if (tile.start != nullptr) sum += static_cast<uint32_t>(tile.start[j]);
      if (tile.addend != nullptr) sum += static_cast<uint32_t>(tile.addend[r][j]);
      tile.c[r][j] = static_cast<int32_t>(sum);
      const uint32_t magnitude = Magnitude(tile.c[r][j]);
      largest = largest > magnitude ? largest : magnitude;
    }
  }
  if (tile.max_lanes != nullptr && largest > tile.max_lanes[0]) tile.max_lanes[0] = largest;
}

// Dot::Row makes of four broadcast bytes of A what Dot::Add(sums, row, column) takes.
template <typename Dot, int kRows>
static void Avx2RunTile(const Int8Tile& tile) {
  __m256i sums[kRows][2];
  for (auto& row : sums) row[0] = row[1] = _mm256_setzero_si256();
  for (int s = 0; s < tile.segment_count; ++s) {
    const Int8Segment& segment = tile.segments[s];
    const int8_t* b = tile.b + segment.b_offset;
    int64_t offset = segment.a_offset;
    for (int64_t step = 0; step < segment.steps; ++step, b += 64, offset += tile.a_step) {
      const __m256i left = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
      const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 32));
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        int32_t four;
        std::memcpy(&four, tile.a[r] + offset, sizeof(four));
        const typename Dot::Row row(_mm256_set1_epi32(four));
        sums[r][0] = Dot::Add(sums[r][0], row, left);
        sums[r][1] = Dot::Add(sums[r][1], row, right);
      }
    }
  }
  Avx2FinishTile(tile, sums);
}

template <bool kPseudoStochastic>
static void Avx2Rescale(const int32_t* acc, int64_t n, int shift, bool relu, const int8_t* mask,
                        int8_t* out) {
  const __m128i all = _mm_cvtsi32_si128(shift), half = _mm_cvtsi32_si128(shift / 2);
  const __m128i odd = _mm_cvtsi32_si128(shift & 1);
  const __m256i rest_mask = _mm256_set1_epi32(static_cast<int>((1u << shift) - 1));
  const __m256i low_mask = _mm256_set1_epi32(static_cast<int>((1u << (shift / 2)) - 1));
  const __m256i nearest = _mm256_set1_epi32(shift == 0 ? 0 : static_cast<int>(1u << (shift - 1)));
  const __m256i least = _mm256_set1_epi32(relu ? 0 : -127), most = _mm256_set1_epi32(127);
  // The first byte of each int32, per half.
  const __m256i bytes =
      _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1,
                       -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(acc + i));
    const __m256i magnitude = _mm256_abs_epi32(x);
    __m256i y;
    if (kPseudoStochastic) {
      const __m256i high = _mm256_srl_epi32(_mm256_and_si256(magnitude, rest_mask), half);
      const __m256i low = _mm256_sll_epi32(_mm256_and_si256(magnitude, low_mask), odd);
      // Both are below 2^17: signed comparison is right. All ones is -1.
      y = _mm256_sub_epi32(_mm256_srl_epi32(magnitude, all), _mm256_cmpgt_epi32(high, low));
    } else {
      y = _mm256_srl_epi32(_mm256_add_epi32(magnitude, nearest), all);
    }
    y = _mm256_sign_epi32(_mm256_min_epu32(y, most), x);
    y = _mm256_max_epi32(y, least);
    const __m256i packed = _mm256_shuffle_epi8(y, bytes);
    uint64_t eight = static_cast<uint32_t>(_mm256_extract_epi32(packed, 0)) |
                     static_cast<uint64_t>(static_cast<uint32_t>(_mm256_extract_epi32(packed, 4)))
                         << 32;
    if (mask != nullptr) {
      uint64_t given;
      std::memcpy(&given, mask + i, sizeof(given));
      const __m128i keep =
          _mm_cmpgt_epi8(_mm_cvtsi64_si128(static_cast<int64_t>(given)), _mm_setzero_si128());
      eight &= static_cast<uint64_t>(_mm_cvtsi128_si64(keep));
    }
    std::memcpy(out + i, &eight, sizeof(eight));
  }
  if (kPseudoStochastic) {
    RescalePseudoStochasticFrom(i, acc, n, shift, relu, mask, out);
  } else {
    RescaleHalfAwayFrom(i, acc, n, shift, relu, mask, out);
  }
}

// Plain loops that the compiler turns into vectors.
static uint32_t Avx2MaxAbs(const int32_t* acc, int64_t n) { return MaxAbsFrom(0, acc, n, 0); }

static void Avx2SubtractSaturating(const int8_t* w, const int8_t* g, int64_t n, int8_t* out) {
  SubtractSaturatingFrom(0, w, g, n, out);
}

static inline __m256i Avx2Widen(const int8_t* from) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

// See avx512_depthwise.h.
static void Avx2DepthwiseRow(const int8_t* const* x, int64_t x_step, const int8_t* const* w,
                             int taps, int64_t pixels, int64_t channels, int32_t* acc,
                             int64_t acc_step, uint32_t* max_lanes) {
  constexpr int kTaps = 64;
  const int64_t whole = taps > kTaps ? 0 : channels & ~int64_t{7};
  __m256i largest = _mm256_setzero_si256(), factors[kTaps];
  for (int64_t c = 0; c < whole; c += 8) {
    for (int t = 0; t < taps; ++t) {
      factors[t] = _mm256_and_si256(Avx2Widen(w[t] + c), _mm256_set1_epi32(0xFFFF));
    }
    for (int64_t p = 0; p < pixels; ++p) {
      __m256i sum = _mm256_setzero_si256();
      for (int t = 0; t < taps; ++t) {
        const __m256i values = Avx2Widen(x[t] + p * x_step + c);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(values, factors[t]));
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(acc + p * acc_step + c), sum);
      largest = _mm256_max_epu32(largest, _mm256_abs_epi32(sum));
    }
  }
  DepthwiseRowFrom(whole, x, x_step, w, taps, pixels, channels, acc, acc_step, max_lanes);
  if (max_lanes == nullptr) return;
  auto* lanes = reinterpret_cast<__m256i*>(max_lanes);
  _mm256_storeu_si256(lanes, _mm256_max_epu32(_mm256_loadu_si256(lanes), largest));
}

static void Avx2DepthwiseWeightRow(const int8_t* dy, int64_t dy_step, const int8_t* x,
                                   int64_t x_step, int64_t pixels, int64_t channels, int32_t* dw) {
  const int64_t whole = channels & ~int64_t{7};
  for (int64_t c = 0; c < whole; c += 8) {
    __m256i sum = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(dw + c));
    for (int64_t p = 0; p < pixels; ++p) {
      const __m256i factor =
          _mm256_and_si256(Avx2Widen(dy + p * dy_step + c), _mm256_set1_epi32(0xFFFF));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(Avx2Widen(x + p * x_step + c), factor));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dw + c), sum);
  }
  DepthwiseWeightRowLoop(dy + whole, dy_step, x + whole, x_step, pixels, channels - whole,
                         dw + whole);
}

}  // namespace runnel::cpu
