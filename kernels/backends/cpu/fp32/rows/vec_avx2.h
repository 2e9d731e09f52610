#pragma once

// AVX2 and FMA registers for the kernel templates. Only for kernels_avx2.cc.

#include <immintrin.h>

#include <cstdint>

namespace runnel::fp32 {

struct VecAvx2 {
  static constexpr int kWidth = 8;
  static constexpr int kTileVectors = 3;
  static constexpr int kProductRows[4] = {0, 10, 6, 4};
  static constexpr int kOuterRows[4] = {0, 12, 6, 4};
  using Reg = __m256;

  static Reg Zero() { return _mm256_setzero_ps(); }
  static Reg Set1(float v) { return _mm256_set1_ps(v); }
  static Reg Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, Reg v) { _mm256_storeu_ps(p, v); }
  static Reg LoadPart(const float* p, int n) { return _mm256_maskload_ps(p, MaskOf(n)); }
  static void StorePart(float* p, Reg v, int n) { _mm256_maskstore_ps(p, MaskOf(n), v); }
  static Reg Add(Reg a, Reg b) { return _mm256_add_ps(a, b); }
  static Reg Sub(Reg a, Reg b) { return _mm256_sub_ps(a, b); }
  static Reg Mul(Reg a, Reg b) { return _mm256_mul_ps(a, b); }
  static Reg Fma(Reg a, Reg b, Reg c) { return _mm256_fmadd_ps(a, b, c); }
  static Reg Fnma(Reg a, Reg b, Reg c) { return _mm256_fnmadd_ps(a, b, c); }
  static Reg Max(Reg a, Reg b) { return _mm256_max_ps(a, b); }
  static Reg Min(Reg a, Reg b) { return _mm256_min_ps(a, b); }
  static Reg ClearOutside(Reg g, Reg v, Reg low, Reg high) {
    const Reg keep =
        _mm256_and_ps(_mm256_cmp_ps(v, low, _CMP_NLE_UQ), _mm256_cmp_ps(v, high, _CMP_NGE_UQ));
    return _mm256_and_ps(g, keep);
  }
  static Reg ClearNotAbove(Reg g, Reg v, Reg low) {
    return _mm256_and_ps(g, _mm256_cmp_ps(v, low, _CMP_NLE_UQ));
  }

  static void Transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    Reg q[2][4];
#pragma GCC unroll 2
    for (int g = 0; g < 2; ++g) {
      const float* p = in + 4 * g * in_stride;
      const Reg r0 = Load(p), r1 = Load(p + in_stride);
      const Reg r2 = Load(p + 2 * in_stride), r3 = Load(p + 3 * in_stride);
      const __m256d a = _mm256_castps_pd(_mm256_unpacklo_ps(r0, r1));
      const __m256d b = _mm256_castps_pd(_mm256_unpackhi_ps(r0, r1));
      const __m256d c = _mm256_castps_pd(_mm256_unpacklo_ps(r2, r3));
      const __m256d d = _mm256_castps_pd(_mm256_unpackhi_ps(r2, r3));
      q[g][0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
      q[g][1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
      q[g][2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
      q[g][3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      Store(out + j * out_stride, _mm256_permute2f128_ps(q[0][j], q[1][j], 0x20));
      Store(out + (4 + j) * out_stride, _mm256_permute2f128_ps(q[0][j], q[1][j], 0x31));
    }
  }

  // As VecAvx512::PhiloxWords.
  static void PhiloxWords(const uint32_t key[2], const uint32_t sequence[2], uint64_t block,
                          uint32_t words[64]) {
    const __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57);
    const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
    for (int quarter = 0; quarter < 4; ++quarter, words += 16) {
      const __m256i counter =
          _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(block) + 4 * quarter),
                           _mm256_set_epi64x(3, 2, 1, 0));
      __m256i w0 = _mm256_and_si256(counter, low), w1 = _mm256_srli_epi64(counter, 32);
      __m256i w2 = _mm256_set1_epi64x(sequence[0]), w3 = _mm256_set1_epi64x(sequence[1]);
      uint32_t k0 = key[0], k1 = key[1];
#pragma GCC unroll 7
      for (int round = 0; round < 7; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const __m256i p0 = _mm256_mul_epu32(m0, w0), p1 = _mm256_mul_epu32(m1, w2);
        w0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32),
                              _mm256_xor_si256(w1, _mm256_set1_epi64x(k0)));
        w1 = _mm256_and_si256(p1, low);
        w2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32),
                              _mm256_xor_si256(w3, _mm256_set1_epi64x(k1)));
        w3 = _mm256_and_si256(p0, low);
      }
      const __m256i a = _mm256_or_si256(w0, _mm256_slli_epi64(w1, 32));
      const __m256i b = _mm256_or_si256(w2, _mm256_slli_epi64(w3, 32));
      const __m256i even = _mm256_unpacklo_epi64(a, b), odd = _mm256_unpackhi_epi64(a, b);
      auto* to = reinterpret_cast<__m256i*>(words);
      _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
      _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
  }

 private:
  static __m256i MaskOf(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace runnel::fp32
