#pragma once

// A register of columns on its way through SumFinish. Only for kernels_*.cc.

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/fp32/rows/channel_tiles.h"

namespace runnel::fp32 {

// The same values as a normalisation, an activation and an addition one after the other give.
template <typename V, bool PART>
struct FinishColumns {
  typename V::Reg factor, offset;

  // x * 1 + -0 is x, whatever its sign.
  [[gnu::always_inline]] inline FinishColumns(const SumFinish& f, int64_t column, int lanes)
      : factor(f.factor == nullptr ? V::Set1(1.0f) : LoadLanes<V, PART>(f.factor + column, lanes)),
        offset(f.factor == nullptr ? V::Set1(-0.0f)
                                   : LoadLanes<V, PART>(f.offset + column, lanes)) {}

  // place: of the sum.
  [[gnu::always_inline]] inline void Store(const SumFinish& f, typename V::Reg sum,
                                           const float* place, int lanes) const {
    const int64_t at = place - f.sums;
    typename V::Reg y = Clamped(f.first, V::Fma(sum, factor, offset));
    if (f.addend != nullptr)
      y = Clamped(f.second, V::Add(y, LoadLanes<V, PART>(f.addend + at, lanes)));
    StoreLanes<V, PART>(f.target + at, y, lanes);
  }

 private:
  [[gnu::always_inline]] static inline typename V::Reg Clamped(const Clamp& clamp,
                                                               typename V::Reg y) {
    return V::Min(V::Set1(clamp.high), V::Max(V::Set1(clamp.low), y));
  }
};

}  // namespace runnel::fp32
