#pragma once

// The inner loops of programs of halves (kernels/ir/arithmetic/half_products.h), one row an
// instruction set, compiled from one text (rows/loops_body.inc). All rows give the same bytes: loops
// run along channels or elements, so no sum depends on the width of a register. Pure functions; any
// thread. Pointers need no alignment beyond that of their type.

#include <cstdint>

#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/ir/range_tally.h"
#include "proto/base/host/isa.h"
#include "proto/base/tensor/dtype.h"

namespace runnel::half {

// A batch normalisation by channel, as ref computes it: in double.
struct Norm {
  const double* mean = nullptr;
  const double* inverse = nullptr;  // 1 / standard deviation
  const double* scale = nullptr;
  const double* shift = nullptr;  // of the gradient: mean of dy
  const double* slope = nullptr;  // of the gradient alone: mean of dy * (x - mean) * inverse
};

// Conversions of one type.
struct Conversions {
  void (*widen)(const uint16_t* x, int64_t count, float* y);
  // The elements of each pair in exchanged places.
  void (*widen_pairs)(const uint16_t* x, int64_t count, float* y);
  // As NarrowHalf.
  RangeCounts (*narrow)(const float* x, int64_t count, uint16_t* y);
};

struct Loops {
  Isa isa;
  Conversions bf16, f16;

  // Those of fp32::Kernels, with fused multiply-adds; null: the row of fp32 has them.
  void (*product)(const fp32::Product& product);
  void (*outer_product)(const fp32::OuterProduct& product);
  void (*row_product)(const fp32::RowProduct& product);
  // sums += x * w, fused.
  void (*multiply_add)(const float* x, const float* w, int64_t count, float* sums);
  // Makes -0 a 0.
  void (*clear_signs)(float* sums, int64_t count);

  // y may be an operand.
  void (*relu)(const float* x, int64_t count, float* y);
  void (*relu6)(const float* x, int64_t count, float* y);
  void (*relu_gradient)(const float* dy, const float* y, int64_t count, float* dx);
  void (*relu6_gradient)(const float* dy, const float* y, int64_t count, float* dx);
  void (*add)(const float* a, const float* b, int64_t count, float* y);

  // Over rows of channels. sums += x.
  void (*add_rows)(const float* x, int64_t rows, int64_t channels, double* sums);
  // squares += (x - mean)^2.
  void (*add_squares)(const float* x, int64_t rows, int64_t channels, const double* mean,
                      double* squares);
  void (*normalise)(const float* x, int64_t rows, int64_t channels, const Norm& norm, float* y);
  // sums += dy, products += dy * (x - mean) * inverse.
  void (*add_gradients)(const float* dy, const float* x, int64_t rows, int64_t channels,
                        const Norm& norm, double* sums, double* products);
  void (*norm_gradient)(const float* dy, const float* x, int64_t rows, int64_t channels,
                        const Norm& norm, float* dx);
  // y = sums / divisor.
  void (*divide)(const double* sums, int64_t count, double divisor, float* y);
  // sums += dy where taps == tap.
  void (*add_where)(const float* dy, const uint8_t* taps, uint8_t tap, int64_t count, double* sums);

  const Conversions& of(DType type) const { return type == DType::kBFloat16 ? bf16 : f16; }
};

// The best row that this machine can run and that needs no more than `isa`.
const Loops& LoopsFor(Isa isa);

}  // namespace runnel::half
