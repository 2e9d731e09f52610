#pragma once

// Matrix products of the primitives: C (n x m) = A (n x k) * B, all row-major without gaps. MM reads
// B as k x m, MM_T as m x k (transposed). Operands do not overlap.
//
// || Order of the sums. Of every kernel but those with lanes: terms by ascending k, one after the
// other, so that no unrolling can be seen in a result.
// || Kernels with two lanes (fp16's MM_T): the terms of even k are one sum, those of odd k another;
// an odd k's last term L is added first: L + (even + odd). Columns beyond the last whole unrolling
// are summed as without lanes. (As PULP-TrainLib's mm_fp16_SIMD_*.)
// || Loops. "N": rows outside, columns inside; "M": columns outside. Cores divide the outer loop
// (first, last).
//
// Freestanding. Any thread; a call touches nothing but its operands.

#include "kernels/backends/small/primitives/numbers.h"

namespace runnel::small {

// Where a sum begins.
enum class Start : uint8_t {
  kZero,      // C = the sum
  kContinue,  // the sum begins with C; not with lanes
  kAdd,       // C = C + the sum
};

template <class Rule>
struct MatrixCall {
  const typename Rule::Element* a = nullptr;
  const typename Rule::Element* b = nullptr;
  typename Rule::Sum* c = nullptr;
  int32_t n = 0, k = 0, m = 0;
  Start start = Start::kZero;
  // The part of the outer loop that this core computes: rows ("N") or columns ("M").
  int32_t first = 0, last = INT32_MAX;
};

template <class Rule>
struct MatrixKernel {
  const char* name;  // "2x4", "m2x4", "naive"
  int rows, columns;
  int lanes;  // 2: MM_T sums in two lanes
  void (*mm)(const MatrixCall<Rule>& call);
  void (*mm_t)(const MatrixCall<Rule>& call);
};

template <class Rule>
struct MatrixKernels {
  const MatrixKernel<Rule>* rows;
  int count;
};
// The table of a type, the naive one first. Defined for Float32Rule, WideRule and NarrowRule of F16
// and Bf16.
template <class Rule>
MatrixKernels<Rule> KernelsOf();

// The outer loop's part of core `core` of `cores`: whole unrollings but for the last.
inline void TakeCore(int32_t outer, int unroll, int core, int cores, int32_t* first,
                     int32_t* last) {
  const int32_t blocks = (outer + unroll - 1) / unroll;
  const int32_t share = (blocks + cores - 1) / cores * unroll;
  *first = share * core < outer ? share * core : outer;
  *last = *first + share < outer ? *first + share : outer;
}

}  // namespace runnel::small
