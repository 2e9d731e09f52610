#include "kernels/inference/loops/avx512_requantize.h"
#include "kernels/inference/loops/code_loops.h"

namespace runnel::inference {
namespace {

constexpr int kVectorBytes = 64;
#include "kernels/inference/loops/code_loops_body.inc"

constexpr int kTaps = 9, kTapGroups = 3;

// Bytes of 64 channels of one tap, plus 128 each: vpdpbusd wants them unsigned.
__m512i LoadTap(const int8_t* from, __mmask64 inside) {
  const __m512i bytes = _mm512_maskz_loadu_epi8(inside, from);
  return _mm512_xor_si512(bytes, _mm512_set1_epi8(INT8_MIN));
}

// Adds four taps: their bytes come side by side channel by channel, so register v has, of each
// quarter's 16 channels, the fourth number v.
void AddFourTaps(const __m512i (&tap)[4], const __m512i (&weights)[4], __m512i (&sums)[4]) {
  const __m512i low01 = _mm512_unpacklo_epi8(tap[0], tap[1]);
  const __m512i high01 = _mm512_unpackhi_epi8(tap[0], tap[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(tap[2], tap[3]);
  const __m512i high23 = _mm512_unpackhi_epi8(tap[2], tap[3]);
  sums[0] = _mm512_dpbusd_epi32(sums[0], _mm512_unpacklo_epi16(low01, low23), weights[0]);
  sums[1] = _mm512_dpbusd_epi32(sums[1], _mm512_unpackhi_epi16(low01, low23), weights[1]);
  sums[2] = _mm512_dpbusd_epi32(sums[2], _mm512_unpacklo_epi16(high01, high23), weights[2]);
  sums[3] = _mm512_dpbusd_epi32(sums[3], _mm512_unpackhi_epi16(high01, high23), weights[3]);
}

void DepthwiseNine(const CodeColumns& columns, const NineTaps& row) {
  for (int64_t c = 0; c < row.channels; c += 64) {
    const int64_t left = row.channels - c;
    const __mmask64 inside = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const SixtyFour<false> block(columns, c);
    __m512i weights[kTapGroups][4];
    for (int i = 0; i < 4 * kTapGroups; ++i) {
      weights[i / 4][i % 4] = _mm512_loadu_si512(row.weights + (c * kTapGroups + 16 * i) * 4);
    }
    for (int64_t p = 0; p < row.pixels; ++p) {
      __m512i sums[4] = {block.offset[0], block.offset[1], block.offset[2], block.offset[3]};
#pragma GCC unroll 3
      for (int g = 0; g < kTapGroups; ++g) {
        __m512i tap[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
          tap[k] = 4 * g + k < kTaps ? LoadTap(row.x[4 * g + k] + p * row.x_step + c, inside)
                                     : _mm512_setzero_si512();
        }
        AddFourTaps(tap, weights[g], sums);
      }
      __m512i code[4];
      block.Round(sums, code);
      _mm512_mask_storeu_epi8(row.codes + p * row.channels + c, inside, block.Pack(code));
    }
  }
}

constexpr CodeLoops MakeVnniLoops() {
  CodeLoops loops = MakeLoops("avx512_vnni");
  loops.depthwise_nine = DepthwiseNine;
  return loops;
}

}  // namespace

extern const CodeLoops kAvx512VnniCodeLoops;
const CodeLoops kAvx512VnniCodeLoops = MakeVnniLoops();

}  // namespace runnel::inference
