// Advanced SIMD as every arm64 processor has it (Raspberry Pi 3 and 4).

#include "kernels/backends/cpu/codes/code_loops.h"
#include "kernels/backends/cpu/codes/rows/neon_codes.h"
#include "kernels/backends/cpu/codes/rows/nine_taps.h"

namespace runnel::cpu {
namespace {

// Two products of codes and weights fit 16 bits (2 * 127 * 127 < 2^15).
template <bool kIsWhole>
struct WideningNineTaps : NeonNineTaps<kIsWhole> {
  using Sums = typename NeonNineTaps<kIsWhole>::Sums;
  struct Column {
    int8x16_t top, middle, bottom;
  };

  WideningNineTaps(const CodeColumns& columns, const NineTaps& row, int64_t c, int64_t inside)
      : NeonNineTaps<kIsWhole>(columns, c, inside) {
    for (int k = 0; k < 3; ++k) weights[k] = vld4q_s8(row.weights + (c * 3 + 16 * k) * 4);
  }

  Column Load(const int8_t* top, const int8_t* middle, const int8_t* bottom) const {
    return {this->LoadRow(top), this->LoadRow(middle), this->LoadRow(bottom)};
  }
  template <int kColumn>
  void Add(const Column& column, Sums& sums) const {
    const int8x16_t *w = weights[kColumn].val, &x = column.bottom;
    const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(column.top), vget_low_s8(w[0])),
                                   vget_low_s8(column.middle), vget_low_s8(w[1]));
    AddWide(low, vmlal_high_s8(vmull_high_s8(column.top, w[0]), column.middle, w[1]), sums);
    AddWide(vmull_s8(vget_low_s8(x), vget_low_s8(w[2])), vmull_high_s8(x, w[2]), sums);
  }
  static void AddWide(int16x8_t low, int16x8_t high, Sums& sums) {
    sums.quad[0] = vaddw_s16(sums.quad[0], vget_low_s16(low));
    sums.quad[1] = vaddw_high_s16(sums.quad[1], low);
    sums.quad[2] = vaddw_s16(sums.quad[2], vget_low_s16(high));
    sums.quad[3] = vaddw_high_s16(sums.quad[3], high);
  }

  int8x16x4_t weights[3];
};

constexpr CodeLoops MakeNeonLoops() {
  CodeLoops loops = MakeLoops("neon", Isa::kNeon);
  loops.depthwise_nine = {
      .run = DepthwiseNine<WideningNineTaps>, .block = 16, .bias = 0, .rounds_once = true};
  return loops;
}

}  // namespace

extern const CodeLoops kNeonCodeLoops;
const CodeLoops kNeonCodeLoops = MakeNeonLoops();

}  // namespace runnel::cpu
