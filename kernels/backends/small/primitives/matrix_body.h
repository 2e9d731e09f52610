#pragma once

// One text for all kernels of matrix.h.

#include "kernels/backends/small/primitives/matrix.h"

// Loops over a block's sums: without it -O2 leaves them loops, and the sums in memory.
#define RUNNEL_SMALL_UNROLL _Pragma("GCC unroll 8")

namespace runnel::small {

template <class Rule, bool kTransposed>
typename Rule::Element ElementOfB(const MatrixCall<Rule>& call, int32_t k, int32_t j) {
  return kTransposed ? call.b[static_cast<ptrdiff_t>(j) * call.k + k]
                     : call.b[static_cast<ptrdiff_t>(k) * call.m + j];
}

template <class Rule>
void StoreSum(const MatrixCall<Rule>& call, int32_t i, int32_t j, typename Rule::Sum sum) {
  typename Rule::Sum& c = call.c[static_cast<ptrdiff_t>(i) * call.m + j];
  c = call.start == Start::kAdd ? Rule::Join(c, sum) : sum;
}

template <class Rule>
typename Rule::Sum FirstSum(const MatrixCall<Rule>& call, int32_t i, int32_t j) {
  if (call.start != Start::kContinue) return typename Rule::Sum{};
  return call.c[static_cast<ptrdiff_t>(i) * call.m + j];
}

// kRows x kColumns sums, kDepth terms of each an iteration.
template <class Rule, bool kTransposed, int kRows, int kColumns, int kDepth>
inline void SumBlock(const MatrixCall<Rule>& call, int32_t i, int32_t j) {
  using Element = typename Rule::Element;
  typename Rule::Sum sums[kRows][kColumns];
  RUNNEL_SMALL_UNROLL
  for (int u = 0; u < kRows; ++u) {
    RUNNEL_SMALL_UNROLL
    for (int v = 0; v < kColumns; ++v) sums[u][v] = FirstSum(call, i + u, j + v);
  }
  const Element* a = call.a + static_cast<ptrdiff_t>(i) * call.k;
  const Element* b = kTransposed ? call.b + static_cast<ptrdiff_t>(j) * call.k : call.b + j;
  const ptrdiff_t a_row = call.k;
  const ptrdiff_t b_column = kTransposed ? call.k : 1, b_term = kTransposed ? 1 : call.m;
  const auto add_term = [&](int32_t k) __attribute__((always_inline)) {
    Element left[kRows], right[kColumns];
    RUNNEL_SMALL_UNROLL
    for (int u = 0; u < kRows; ++u) left[u] = a[u * a_row + k];
    RUNNEL_SMALL_UNROLL
    for (int v = 0; v < kColumns; ++v) right[v] = b[v * b_column + k * b_term];
    RUNNEL_SMALL_UNROLL
    for (int u = 0; u < kRows; ++u) {
      RUNNEL_SMALL_UNROLL
      for (int v = 0; v < kColumns; ++v) sums[u][v] = Rule::Add(sums[u][v], left[u], right[v]);
    }
  };
  int32_t k = 0;
  for (; k + kDepth <= call.k; k += kDepth) {
    RUNNEL_SMALL_UNROLL
    for (int d = 0; d < kDepth; ++d) add_term(k + d);
  }
  if (kDepth > 1) {
    for (; k < call.k; ++k) add_term(k);
  }
  RUNNEL_SMALL_UNROLL
  for (int u = 0; u < kRows; ++u) {
    RUNNEL_SMALL_UNROLL
    for (int v = 0; v < kColumns; ++v) StoreSum(call, i + u, j + v, sums[u][v]);
  }
}

// As SumBlock of MM_T, in two lanes.
template <class Rule, int kRows, int kColumns>
inline void SumLanes(const MatrixCall<Rule>& call, int32_t i, int32_t j) {
  using Sum = typename Rule::Sum;
  Lanes<Rule> lanes[kRows][kColumns] = {};
  const typename Rule::Element* a[kRows];
  const typename Rule::Element* b[kColumns];
  RUNNEL_SMALL_UNROLL
  for (int u = 0; u < kRows; ++u) a[u] = call.a + static_cast<ptrdiff_t>(i + u) * call.k;
  RUNNEL_SMALL_UNROLL
  for (int v = 0; v < kColumns; ++v) b[v] = call.b + static_cast<ptrdiff_t>(j + v) * call.k;
  int32_t k = 0;
  for (; k + 2 <= call.k; k += 2) {
    RUNNEL_SMALL_UNROLL
    for (int u = 0; u < kRows; ++u) {
      RUNNEL_SMALL_UNROLL
      for (int v = 0; v < kColumns; ++v) lanes[u][v].Add(a[u] + k, b[v] + k);
    }
  }
  RUNNEL_SMALL_UNROLL
  for (int u = 0; u < kRows; ++u) {
    RUNNEL_SMALL_UNROLL
    for (int v = 0; v < kColumns; ++v) {
      Sum sum = {};
      if (k < call.k) sum = Rule::Add(sum, a[u][k], b[v][k]);
      StoreSum(call, i + u, j + v, Rule::Join(sum, lanes[u][v].Joined()));
    }
  }
}

// kRows rows from i: whole unrollings of columns, then single ones.
template <class Rule, bool kTransposed, int kRows, int kColumns, int kDepth, int kLanes>
inline void SumRows(const MatrixCall<Rule>& call, int32_t i, int32_t first, int32_t last) {
  int32_t j = first;
  for (; j + kColumns <= last; j += kColumns) {
    if constexpr (kLanes == 2 && kTransposed) {
      SumLanes<Rule, kRows, kColumns>(call, i, j);
    } else {
      SumBlock<Rule, kTransposed, kRows, kColumns, kDepth>(call, i, j);
    }
  }
  for (; j < last; ++j) {
    RUNNEL_SMALL_UNROLL
    for (int u = 0; u < kRows; ++u) SumBlock<Rule, kTransposed, 1, 1, 1>(call, i + u, j);
  }
}

// kColumns columns from j, of all rows.
template <class Rule, bool kTransposed, int kRows, int kColumns, int kDepth, int kLanes>
inline void SumColumns(const MatrixCall<Rule>& call, int32_t j) {
  constexpr bool kHasLanes = kLanes == 2 && kTransposed;
  int32_t i = 0;
  for (; i + kRows <= call.n; i += kRows) {
    if constexpr (kHasLanes) {
      SumLanes<Rule, kRows, kColumns>(call, i, j);
    } else {
      SumBlock<Rule, kTransposed, kRows, kColumns, kDepth>(call, i, j);
    }
  }
  for (; i < call.n; ++i) {
    if constexpr (kHasLanes) {
      SumLanes<Rule, 1, kColumns>(call, i, j);
    } else {
      RUNNEL_SMALL_UNROLL
      for (int v = 0; v < kColumns; ++v) SumBlock<Rule, kTransposed, 1, 1, 1>(call, i, j + v);
    }
  }
}

template <class Rule, bool kTransposed, int kRows, int kColumns, int kDepth, int kLanes>
void MultiplyByRows(const MatrixCall<Rule>& call) {
  const int32_t last = call.last < call.n ? call.last : call.n;
  int32_t i = call.first;
  for (; i + kRows <= last; i += kRows)
    SumRows<Rule, kTransposed, kRows, kColumns, kDepth, kLanes>(call, i, 0, call.m);
  for (; i < last; ++i)
    SumRows<Rule, kTransposed, 1, kLanes == 2 ? kColumns : 1, 1, kLanes>(call, i, 0, call.m);
}

template <class Rule, bool kTransposed, int kRows, int kColumns, int kDepth, int kLanes>
void MultiplyByColumns(const MatrixCall<Rule>& call) {
  const int32_t last = call.last < call.m ? call.last : call.m;
  int32_t j = call.first;
  for (; j + kColumns <= last; j += kColumns)
    SumColumns<Rule, kTransposed, kRows, kColumns, kDepth, kLanes>(call, j);
  for (; j < last; ++j) {
    for (int32_t i = 0; i < call.n; ++i) SumBlock<Rule, kTransposed, 1, 1, 1>(call, i, j);
  }
}

template <class Rule, int kRows, int kColumns, int kDepth = 1, int kLanes = 1>
constexpr MatrixKernel<Rule> ByRows(const char* name) {
  return {name,
          kRows,
          kColumns,
          kLanes,
          MultiplyByRows<Rule, false, kRows, kColumns, kDepth, kLanes>,
          MultiplyByRows<Rule, true, kRows, kColumns, kDepth, kLanes>};
}
template <class Rule, int kRows, int kColumns, int kDepth = 1, int kLanes = 1>
constexpr MatrixKernel<Rule> ByColumns(const char* name) {
  return {name,
          kRows,
          kColumns,
          kLanes,
          MultiplyByColumns<Rule, false, kRows, kColumns, kDepth, kLanes>,
          MultiplyByColumns<Rule, true, kRows, kColumns, kDepth, kLanes>};
}

}  // namespace runnel::small

#undef RUNNEL_SMALL_UNROLL
