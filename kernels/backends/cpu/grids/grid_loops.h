#pragma once

// The inner loops of products of codes beside the products themselves (int8/int8_kernels.h), one row
// an instruction set, compiled from one text (rows/loops_body.inc). All rows give the same bytes.
// Pure functions; any thread; pointers need no alignment beyond that of their type.

#include <cstdint>

#include "kernels/ir/arithmetic/code_grid.h"
#include "proto/base/isa.h"

namespace runnel::cpu {

// A row of values from their sums (ValueOfSums).
struct ValueRow {
  const int32_t* sums = nullptr;
  const int32_t* upper = nullptr;  // of wide codes: sums are 256 * upper + sums; or null
  double left = 0;                 // the sum of the left codes
  const double* product_units = nullptr;
  const double* left_units = nullptr;
  const double* right_parts = nullptr;
  int64_t count = 0;
};

struct GridLoops {
  Isa isa;
  // NaN is no part of it.
  ValueRange (*range)(const float* x, int64_t count);
  // CodeOfAffine of each element, with no noise where draws (20 bits each) is null; whether there is
  // a NaN. low: of wide codes the lower parts, else null.
  bool (*codes)(const float* x, const uint32_t* draws, int64_t count, const AffineGrid& grid,
                int32_t centre, int8_t* codes, int8_t* low);
  int32_t (*sum)(const int8_t* codes, int64_t count);
  // sums += codes.
  void (*add)(const int8_t* codes, int64_t count, int32_t* sums);
  void (*values)(const ValueRow& row, float* y);
};

// The best row that this machine can run and that needs no more than `isa`.
const GridLoops& GridLoopsFor(Isa isa);

}  // namespace runnel::cpu
