#include "kernels/backends/cpu/codes/code_loops.h"
#include "kernels/backends/cpu/codes/rows/avx512_requantize.h"
#include "kernels/backends/cpu/codes/rows/nine_taps.h"

namespace runnel::cpu {
namespace {

constexpr int kVectorBytes = 64;
#include "kernels/backends/cpu/codes/rows/code_loops_body.inc"

template <bool kIsWhole>
class SixtyFourNineTaps {
 public:
  static constexpr int64_t kChannels = 64;
  struct Sums {
    __m512i v[4];
  };
  // A column's three bytes of a channel side by side, and a zero: register v has, of each quarter's
  // 16 channels, the fourth number v.
  using Column = Sums;

  SixtyFourNineTaps(const CodeColumns& columns, const NineTaps& row, int64_t c, int64_t inside)
      : inside_(kIsWhole ? ~__mmask64{0} : (__mmask64{1} << inside) - 1), block_(columns, c) {
    for (int i = 0; i < 12; ++i) {
      weights_[i / 4][i % 4] = _mm512_loadu_si512(row.weights + (c * 3 + 16 * i) * 4);
    }
  }

  Column Load(const int8_t* top, const int8_t* middle, const int8_t* bottom) const {
    const __m512i x = LoadRow(top), y = LoadRow(middle), z = LoadRow(bottom);
    const __m512i zero = _mm512_setzero_si512();
    const __m512i low01 = _mm512_unpacklo_epi8(x, y), high01 = _mm512_unpackhi_epi8(x, y);
    const __m512i low23 = _mm512_unpacklo_epi8(z, zero), high23 = _mm512_unpackhi_epi8(z, zero);
    return {{_mm512_unpacklo_epi16(low01, low23), _mm512_unpackhi_epi16(low01, low23),
             _mm512_unpacklo_epi16(high01, high23), _mm512_unpackhi_epi16(high01, high23)}};
  }
  Sums Start() const {
    return {{block_.offset[0], block_.offset[1], block_.offset[2], block_.offset[3]}};
  }
  template <int kColumn>
  void Add(const Column& column, Sums& sums) const {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sums.v[v] = _mm512_dpbusd_epi32(sums.v[v], column.v[v], weights_[kColumn][v]);
    }
  }
  void Store(const Sums& sums, int8_t* codes) const {
    __m512i code[4];
    block_.Round(sums.v, code);
    _mm512_mask_storeu_epi8(codes, inside_, block_.Pack(code));
  }

 private:
  // Plus 128 each: vpdpbusd wants them unsigned.
  __m512i LoadRow(const int8_t* from) const {
    const __m512i bytes = _mm512_maskz_loadu_epi8(inside_, from);
    return _mm512_xor_si512(bytes, _mm512_set1_epi8(INT8_MIN));
  }

  __mmask64 inside_;
  SixtyFour<false> block_;
  __m512i weights_[3][4];
};

constexpr CodeLoops MakeVnniLoops() {
  CodeLoops loops = MakeLoops("avx512_vnni", Isa::kAvx512Vnni);
  loops.depthwise_nine = {.run = DepthwiseNine<SixtyFourNineTaps>, .block = 64, .bias = 128};
  return loops;
}

}  // namespace

extern const CodeLoops kAvx512VnniCodeLoops;
const CodeLoops kAvx512VnniCodeLoops = MakeVnniLoops();

}  // namespace runnel::cpu
