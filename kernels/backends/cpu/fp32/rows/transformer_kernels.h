#pragma once

// The products of attention, once for each instruction set. Only for kernels_*.cc.

#include "kernels/backends/cpu/fp32/kernel_table.h"

namespace runnel::fp32 {

template <typename V, int kVectors>
[[gnu::always_inline]] inline void RowPiece(const RowProduct& p, int64_t at, int last) {
  typename V::Reg sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = V::Zero();
  const float* b = p.b + at;
  for (int64_t k = 0; k < p.depth; ++k, b += p.b_stride) {
    const typename V::Reg a = V::Set1(p.a[k * p.a_stride]);
    for (int v = 0; v + 1 < kVectors; ++v) sums[v] = V::Fma(a, V::Load(b + v * V::kWidth), sums[v]);
    const float* const end = b + (kVectors - 1) * V::kWidth;
    sums[kVectors - 1] =
        V::Fma(a, last == V::kWidth ? V::Load(end) : V::LoadPart(end, last), sums[kVectors - 1]);
  }
  for (int v = 0; v < kVectors; ++v) {
    float* const to = p.out + at + v * V::kWidth;
    const int count = v + 1 < kVectors ? V::kWidth : last;
    V::StorePart(to, sums[v], count);
  }
}

template <typename V>
void RunRowProduct(const RowProduct& p) {
  constexpr int kMost = 4;
  int64_t at = 0;
  for (; at + kMost * V::kWidth <= p.columns; at += kMost * V::kWidth)
    RowPiece<V, kMost>(p, at, V::kWidth);
  for (; at < p.columns; at += V::kWidth) {
    const int64_t left = p.columns - at;
    RowPiece<V, 1>(p, at, left < V::kWidth ? static_cast<int>(left) : V::kWidth);
  }
}

}  // namespace runnel::fp32
