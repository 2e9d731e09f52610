// Advanced SIMD with SDOT (Raspberry Pi 5, phones since 2018).

#include "kernels/backends/cpu/codes/code_loops.h"
#include "kernels/backends/cpu/codes/rows/neon_codes.h"
#include "kernels/backends/cpu/codes/rows/nine_taps.h"

namespace runnel::cpu {
namespace {

// A column's three bytes of a channel lie side by side, and a zero.
template <bool kIsWhole>
struct DotNineTaps : NeonNineTaps<kIsWhole> {
  using Sums = typename NeonNineTaps<kIsWhole>::Sums;
  struct Column {
    int8x16_t quad[4];
  };

  DotNineTaps(const CodeColumns& columns, const NineTaps& row, int64_t c, int64_t inside)
      : NeonNineTaps<kIsWhole>(columns, c, inside) {
    for (int i = 0; i < 12; ++i) {
      weights[i / 4][i % 4] = vld1q_s8(row.weights + (c * 3 + 4 * i) * 4);
    }
  }

  Column Load(const int8_t* top, const int8_t* middle, const int8_t* bottom) const {
    const int8x16_t x = this->LoadRow(top), y = this->LoadRow(middle), z = this->LoadRow(bottom);
    const int8x16_t zero = vdupq_n_s8(0);
    Column column;
    Interleave(vzip1q_s8(x, y), vzip1q_s8(z, zero), column.quad);
    Interleave(vzip2q_s8(x, y), vzip2q_s8(z, zero), column.quad + 2);
    return column;
  }
  template <int kColumn>
  void Add(const Column& column, Sums& sums) const {
    for (int q = 0; q < 4; ++q) {
      sums.quad[q] = vdotq_s32(sums.quad[q], column.quad[q], weights[kColumn][q]);
    }
  }
  static void Interleave(int8x16_t upper, int8x16_t lower, int8x16_t* two) {
    const int16x8_t a = vreinterpretq_s16_s8(upper), b = vreinterpretq_s16_s8(lower);
    two[0] = vreinterpretq_s8_s16(vzip1q_s16(a, b));
    two[1] = vreinterpretq_s8_s16(vzip2q_s16(a, b));
  }

  int8x16_t weights[3][4];
};

constexpr CodeLoops MakeDotprodLoops() {
  CodeLoops loops = MakeLoops("dotprod", Isa::kNeonDotprod);
  loops.depthwise_nine = {
      .run = DepthwiseNine<DotNineTaps>, .block = 16, .bias = 0, .rounds_once = true};
  return loops;
}

}  // namespace

extern const CodeLoops kNeonDotprodCodeLoops;
const CodeLoops kNeonDotprodCodeLoops = MakeDotprodLoops();

}  // namespace runnel::cpu
