#pragma once

// AVX-512 F registers for the kernel templates. Only for kernels_avx512.cc.

#include <immintrin.h>

#include <cstdint>

namespace runnel::fp32 {

struct VecAvx512 {
  static constexpr int kWidth = 16;
  // Rows of a register tile that is 1, 2, 3 and 4 vectors wide: 32 registers hold the sums, one row
  // of B and a broadcast. A product's rows also need a pointer each.
  static constexpr int kTileVectors = 4;
  static constexpr int kProductRows[5] = {0, 12, 12, 8, 6};
  static constexpr int kOuterRows[5] = {0, 24, 14, 8, 6};
  using Reg = __m512;

  static Reg Zero() { return _mm512_setzero_ps(); }
  static Reg Set1(float v) { return _mm512_set1_ps(v); }
  static Reg Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, Reg v) { _mm512_storeu_ps(p, v); }
  // The first n lanes, 0 < n <= kWidth; the others read as 0 and are not written.
  static Reg LoadPart(const float* p, int n) { return _mm512_maskz_loadu_ps(MaskOf(n), p); }
  static void StorePart(float* p, Reg v, int n) { _mm512_mask_storeu_ps(p, MaskOf(n), v); }
  static Reg Add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
  static Reg Sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
  static Reg Mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
  static Reg Fma(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }    // a * b + c
  static Reg Fnma(Reg a, Reg b, Reg c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a * b
  // b where either is NaN.
  static Reg Max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
  static Reg Min(Reg a, Reg b) { return _mm512_min_ps(a, b); }
  // g, but 0 where low < v < high does not hold; a NaN in v keeps g.
  static Reg ClearOutside(Reg g, Reg v, Reg low, Reg high) {
    const __mmask16 keep = _mm512_cmp_ps_mask(v, low, _CMP_NLE_UQ);
    return _mm512_maskz_mov_ps(_mm512_mask_cmp_ps_mask(keep, v, high, _CMP_NGE_UQ), g);
  }
  static Reg ClearNotAbove(Reg g, Reg v, Reg low) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, low, _CMP_NLE_UQ), g);
  }

  // A square of kWidth floats: out = in transposed. Strides in floats.
  static void Transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    // q[g][j], 128-bit lane l: rows 4g..4g+3 of column 4l + j.
    Reg q[4][4];
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const float* p = in + 4 * g * in_stride;
      const Reg r0 = Load(p), r1 = Load(p + in_stride);
      const Reg r2 = Load(p + 2 * in_stride), r3 = Load(p + 3 * in_stride);
      const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1));
      const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1));
      const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
      const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));
      q[g][0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
      q[g][1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
      q[g][2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
      q[g][3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Reg a = _mm512_shuffle_f32x4(q[0][j], q[1][j], 0x44);
      const Reg b = _mm512_shuffle_f32x4(q[2][j], q[3][j], 0x44);
      const Reg c = _mm512_shuffle_f32x4(q[0][j], q[1][j], 0xEE);
      const Reg d = _mm512_shuffle_f32x4(q[2][j], q[3][j], 0xEE);
      Store(out + j * out_stride, _mm512_shuffle_f32x4(a, b, 0x88));
      Store(out + (4 + j) * out_stride, _mm512_shuffle_f32x4(a, b, 0xDD));
      Store(out + (8 + j) * out_stride, _mm512_shuffle_f32x4(c, d, 0x88));
      Store(out + (12 + j) * out_stride, _mm512_shuffle_f32x4(c, d, 0xDD));
    }
  }

  // The words of Philox4x32's blocks `block` to `block` + 15 (proto/base/random.h), one block after
  // the other. A word stands in a 64-bit lane of its own until the end.
  static void PhiloxWords(const uint32_t key[2], const uint32_t sequence[2], uint64_t block,
                          uint32_t words[64]) {
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
    const __m512i low = _mm512_set1_epi64(0xFFFFFFFF);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half, words += 32) {
      const __m512i counter =
          _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(block) + 8 * half),
                           _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
      __m512i w0 = _mm512_and_si512(counter, low), w1 = _mm512_srli_epi64(counter, 32);
      __m512i w2 = _mm512_set1_epi64(sequence[0]), w3 = _mm512_set1_epi64(sequence[1]);
      uint32_t k0 = key[0], k1 = key[1];
#pragma GCC unroll 7
      for (int round = 0; round < 7; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const __m512i p0 = _mm512_mul_epu32(m0, w0), p1 = _mm512_mul_epu32(m1, w2);
        w0 = Xor(_mm512_srli_epi64(p1, 32), w1, _mm512_set1_epi64(k0));
        w1 = _mm512_and_si512(p1, low);
        w2 = Xor(_mm512_srli_epi64(p0, 32), w3, _mm512_set1_epi64(k1));
        w3 = _mm512_and_si512(p0, low);
      }
      const __m512i a = _mm512_or_si512(w0, _mm512_slli_epi64(w1, 32));
      const __m512i b = _mm512_or_si512(w2, _mm512_slli_epi64(w3, 32));
      const __m512i even = _mm512_unpacklo_epi64(a, b), odd = _mm512_unpackhi_epi64(a, b);
      _mm512_storeu_si512(
          words, _mm512_permutex2var_epi64(even, _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), odd));
      _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi64(
                                          even, _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4), odd));
    }
  }

 private:
  static __m512i Xor(__m512i a, __m512i b, __m512i c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
  }
  static __mmask16 MaskOf(int n) { return static_cast<__mmask16>((1u << n) - 1); }
};

}  // namespace runnel::fp32
