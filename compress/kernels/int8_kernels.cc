#include "compress/kernels/int8_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace runnel {
namespace {

constexpr std::byte kNoMantissa{0x80};  // -128

void EncodeFrom(size_t begin, const float* x, size_t n, int32_t exponent, std::byte* mantissas) {
  const double factor = std::ldexp(1.0, -exponent);
  for (size_t e = begin; e < n; ++e) {
    // The product has the 24 bits of the float: a half is added exactly.
    const double scaled = x[e] * factor;
    const auto rounded = static_cast<int32_t>(scaled + std::copysign(0.5, scaled));
    mantissas[e] = static_cast<std::byte>(std::clamp(rounded, -127, 127));
  }
}

bool DecodeFrom(size_t begin, const std::byte* mantissas, size_t n, int32_t exponent, float* out) {
  const double factor = std::ldexp(1.0, exponent);
  bool possible = true;
  for (size_t e = begin; e < n; ++e) {
    possible &= mantissas[e] != kNoMantissa;
    out[e] = static_cast<float>(static_cast<int8_t>(mantissas[e]) * factor);
  }
  return possible;
}

#if defined(__x86_64__) || defined(__aarch64__)

// A half less one place: scaled + copysign(this, scaled), rounded to FP32 and cut off, is `scaled`
// rounded half away from zero for all magnitudes up to 128.
constexpr float kAlmostHalf = 0x1.fffffep-2f;

// 2^exponent as FP32; only where it is normal, so that products are exact or round to 0.
constexpr bool IsNormal(int32_t exponent) { return exponent >= -126 && exponent <= 127; }
float PowerOfTwo(int32_t exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

#endif

#if defined(__x86_64__)

#define RUNNEL_AVX2 __attribute__((target("avx2")))
#define RUNNEL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2")))

RUNNEL_AVX2 __attribute__((always_inline)) inline __m256i RoundEight(const float* x,
                                                                     __m256 factor) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), factor);
  const __m256 half = _mm256_or_ps(_mm256_and_ps(scaled, sign), _mm256_set1_ps(kAlmostHalf));
  return _mm256_cvttps_epi32(_mm256_add_ps(scaled, half));
}

RUNNEL_AVX2 void EncodeAvx2(const float* x, size_t n, int32_t exponent, std::byte* mantissas) {
  size_t e = 0;
  if (IsNormal(-exponent)) {
    const __m256 factor = _mm256_set1_ps(PowerOfTwo(-exponent));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (; e + 32 <= n; e += 32) {
      const __m256i ab =
          _mm256_packs_epi32(RoundEight(x + e, factor), RoundEight(x + e + 8, factor));
      const __m256i cd =
          _mm256_packs_epi32(RoundEight(x + e + 16, factor), RoundEight(x + e + 24, factor));
      const __m256i packed = _mm256_max_epi8(_mm256_packs_epi16(ab, cd), _mm256_set1_epi8(-127));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(mantissas + e),
                          _mm256_permutevar8x32_epi32(packed, order));
    }
  }
  EncodeFrom(e, x, n, exponent, mantissas);
}

RUNNEL_AVX2 bool DecodeAvx2(const std::byte* mantissas, size_t n, int32_t exponent, float* out) {
  size_t e = 0;
  __m256i impossible = _mm256_setzero_si256();
  if (IsNormal(exponent)) {
    const __m256 factor = _mm256_set1_ps(PowerOfTwo(exponent));
    for (; e + 32 <= n; e += 32) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(mantissas + e));
      impossible = _mm256_or_si256(impossible, _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(-128)));
      for (size_t i = 0; i < 32; i += 8) {
        const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(mantissas + e + i));
        const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
        _mm256_storeu_ps(out + e + i, _mm256_mul_ps(values, factor));
      }
    }
  }
  const bool possible = _mm256_testz_si256(impossible, impossible) != 0;
  return DecodeFrom(e, mantissas, n, exponent, out) && possible;
}

RUNNEL_AVX512 __attribute__((always_inline)) inline __m512i RoundSixteen(const float* x,
                                                                         __m512 factor) {
  const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x), factor);
  const __m512 sign = _mm512_set1_ps(-0.0f);
  const __m512 half = _mm512_or_ps(_mm512_and_ps(scaled, sign), _mm512_set1_ps(kAlmostHalf));
  return _mm512_cvttps_epi32(_mm512_add_ps(scaled, half));
}

RUNNEL_AVX512 void EncodeAvx512(const float* x, size_t n, int32_t exponent, std::byte* mantissas) {
  size_t e = 0;
  if (IsNormal(-exponent)) {
    const __m512 factor = _mm512_set1_ps(PowerOfTwo(-exponent));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (; e + 64 <= n; e += 64) {
      const __m512i ab =
          _mm512_packs_epi32(RoundSixteen(x + e, factor), RoundSixteen(x + e + 16, factor));
      const __m512i cd =
          _mm512_packs_epi32(RoundSixteen(x + e + 32, factor), RoundSixteen(x + e + 48, factor));
      const __m512i packed = _mm512_max_epi8(_mm512_packs_epi16(ab, cd), _mm512_set1_epi8(-127));
      _mm512_storeu_si512(mantissas + e, _mm512_permutexvar_epi32(order, packed));
    }
  }
  EncodeFrom(e, x, n, exponent, mantissas);
}

RUNNEL_AVX512 bool DecodeAvx512(const std::byte* mantissas, size_t n, int32_t exponent,
                                float* out) {
  size_t e = 0;
  __mmask64 impossible = 0;
  if (IsNormal(exponent)) {
    const __m512 factor = _mm512_set1_ps(PowerOfTwo(exponent));
    for (; e + 64 <= n; e += 64) {
      const __m512i bytes = _mm512_loadu_si512(mantissas + e);
      impossible |= _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(-128));
      for (size_t i = 0; i < 64; i += 16) {
        const __m128i sixteen =
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(mantissas + e + i));
        const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen));
        _mm512_storeu_ps(out + e + i, _mm512_mul_ps(values, factor));
      }
    }
  }
  return DecodeFrom(e, mantissas, n, exponent, out) && impossible == 0;
}

#elif defined(__aarch64__)

inline int32x4_t RoundFour(const float* x, float32x4_t factor) {
  const float32x4_t scaled = vmulq_f32(vld1q_f32(x), factor);
  return vcvtaq_s32_f32(scaled);  // to nearest, a half away from zero
}

void EncodeNeon(const float* x, size_t n, int32_t exponent, std::byte* mantissas) {
  size_t e = 0;
  if (IsNormal(-exponent)) {
    const float32x4_t factor = vdupq_n_f32(PowerOfTwo(-exponent));
    for (; e + 16 <= n; e += 16) {
      const int16x8_t low = vcombine_s16(vqmovn_s32(RoundFour(x + e, factor)),
                                         vqmovn_s32(RoundFour(x + e + 4, factor)));
      const int16x8_t high = vcombine_s16(vqmovn_s32(RoundFour(x + e + 8, factor)),
                                          vqmovn_s32(RoundFour(x + e + 12, factor)));
      const int8x16_t packed = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
      vst1q_s8(reinterpret_cast<int8_t*>(mantissas + e), vmaxq_s8(packed, vdupq_n_s8(-127)));
    }
  }
  EncodeFrom(e, x, n, exponent, mantissas);
}

bool DecodeNeon(const std::byte* mantissas, size_t n, int32_t exponent, float* out) {
  size_t e = 0;
  uint8x16_t impossible = vdupq_n_u8(0);
  if (IsNormal(exponent)) {
    const float factor = PowerOfTwo(exponent);
    for (; e + 16 <= n; e += 16) {
      const int8x16_t bytes = vld1q_s8(reinterpret_cast<const int8_t*>(mantissas + e));
      impossible = vorrq_u8(impossible, vceqq_s8(bytes, vdupq_n_s8(-128)));
      const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
      const int16x4_t four[4] = {vget_low_s16(low), vget_high_s16(low), vget_low_s16(high),
                                 vget_high_s16(high)};
      for (size_t i = 0; i < 4; ++i) {
        vst1q_f32(out + e + 4 * i, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(four[i])), factor));
      }
    }
  }
  return DecodeFrom(e, mantissas, n, exponent, out) && vmaxvq_u8(impossible) == 0;
}

#endif

}  // namespace

const Int8Kernels kScalarInt8Kernels = {
    [](const float* x, size_t n, int32_t exponent, std::byte* mantissas) {
      EncodeFrom(0, x, n, exponent, mantissas);
    },
    [](const std::byte* mantissas, size_t n, int32_t exponent, float* out) {
      return DecodeFrom(0, mantissas, n, exponent, out);
    }};
#if defined(__x86_64__)
const Int8Kernels kAvx2Int8Kernels = {EncodeAvx2, DecodeAvx2};
const Int8Kernels kAvx512Int8Kernels = {EncodeAvx512, DecodeAvx512};
#elif defined(__aarch64__)
const Int8Kernels kNeonInt8Kernels = {EncodeNeon, DecodeNeon};
#endif

}  // namespace runnel
