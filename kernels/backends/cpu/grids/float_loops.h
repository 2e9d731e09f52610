#pragma once

// The inner loops of floats on grids, element by element and of norms: a part of each row of
// grid_loops.h (rows/float_body.inc), with what that says of all.

#include <cstdint>

#include "kernels/ir/arithmetic/affine_grid.h"
#include "kernels/ir/arithmetic/fixed_point.h"

namespace runnel::cpu {

// Rows of up to kNormChannels neighbouring channels of a norm.
struct NormRows {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t step = 0;  // elements from a row to the next
  int64_t channels = 0;
};
inline constexpr int64_t kNormChannels = 16;

// What a norm by ranges finds in them, by channel.
struct RangeSums {
  double* sums = nullptr;  // go on from what is there, in the order of the rows
  // The first least and largest value of these rows, and where: rows from the first one.
  float* low = nullptr;
  float* high = nullptr;
  int32_t* least = nullptr;
  int32_t* largest = nullptr;
  // Of the backward: sums of e (x - mean), where `sums` are of errors e, which lie as x does, and x
  // is put on its grid. Null: of the forward, `sums` are of x.
  double* products = nullptr;
  const float* errors = nullptr;
  const double* means = nullptr;
  AffineGrid grid;
};

// y = (x - mean) * inverse * scale + shift, by channel.
struct NormFactors {
  const float* means = nullptr;
  const float* inverses = nullptr;
  const float* scales = nullptr;
  const float* shifts = nullptr;
};

// A norm on fixed points, by channel: u = (x - mean) * inverse, which `steps` rounds.
struct FixedNorm {
  const double* means = nullptr;
  const double* inverses = nullptr;
  StepGrid steps;
};

struct FloatLoops {
  // AffineValue of each element, or NoisyAffineValue where there are draws. y may be x.
  void (*affine_values)(const float* x, const uint32_t* draws, int64_t count,
                        const AffineGrid& grid, float* y);
  // StepGrid::ValueOf of each element; 0 where a gate is there and not above 0. y may be x.
  void (*step_values)(const float* x, const float* gate, int64_t count, const StepGrid& grid,
                      float* y);
  // FlaggedValue of each element. y may be x.
  void (*flagged_values)(const float* x, int64_t count, double power, int bits, float* y);

  // Sums of x, or of (x - mean)^2 where there are means; they go on from what is there, in the order
  // of the rows, as all sums here do.
  void (*moments)(const NormRows& rows, const double* means, double* sums);
  void (*range_sums)(const NormRows& rows, const RangeSums& sums);
  // Dense rows of all channels. y may be x.
  void (*normalise)(const float* x, int64_t rows, int64_t channels, const NormFactors& factors,
                    float* y);
  // y = factor * (y - mean), in double.
  void (*centre)(int64_t rows, int64_t step, int64_t channels, const double* factors,
                 const double* means, float* y);
  // y = factor * (u on its steps) + added; y lies as x does.
  void (*fixed_normalise)(const NormRows& rows, const FixedNorm& norm, const double* factors,
                          const double* added, float* y);
  // Of errors e, which lie as x does: sums[0] of e, sums[1] of e * u, sums[2] of e * (u on its steps).
  void (*fixed_sums)(const NormRows& rows, const FixedNorm& norm, const float* errors,
                     double (*sums)[kNormChannels]);
  // dx = factor * (e - mean - u * product), means and products by channel; dx lies as x does.
  void (*fixed_gradient)(const NormRows& rows, const FixedNorm& norm, const float* errors,
                         const double* factors, const double* means, const double* products,
                         float* dx);
};

}  // namespace runnel::cpu
