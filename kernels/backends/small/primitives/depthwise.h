#pragma once

// Depthwise convolutions, pools and batch norm, of one channel at a time: planes of CHW.
// Freestanding. Any thread.

#include "kernels/backends/small/primitives/layers.h"

namespace runnel::small {

// One channel: X and Y are planes, W has kh * kw weights. Conv's channels do not count.
//
// Sums begin as `start` says. Terms ascend: of the forward by tap, of the weight-gradient by output
// position, of the input-gradient by position of the window over dY (with keeps_taps by tap of W).
// What lies in the padding, or between outputs, is no term.
template <class Rule>
struct DepthwiseCall {
  Conv conv;
  const typename Rule::Element *x = nullptr, *w = nullptr, *dy = nullptr;
  typename Rule::Sum* result = nullptr;
  Start start = Start::kZero;
  bool by_taps = true;  // tap after tap, else output after output: the same sums
};
template <class Rule>
void RunDepthwise(Step step, const DepthwiseCall<Rule>& call);

// A pool over one plane of FP32. Sums are doubles, rounded once.
struct Pool {
  Conv window;
};
// The first maximum, of NaN the first; padding is not seen. `taps` may be null.
void MaxPool(const Pool& pool, const float* x, float* y, uint8_t* taps);
void MaxPoolGradient(const Pool& pool, const float* dy, const uint8_t* taps, double* sums,
                     float* dx);
void AveragePool(const Pool& pool, const float* x, float* y);
void AveragePoolGradient(const Pool& pool, const float* dy, double* sums, float* dx);

// Batch norm of one channel, piece by piece in ascending order: the sums of all pieces are those of the
// whole.
struct Moments {
  double mean = 0, variance = 0, unbiased = 0;
};
void AddSum(const float* x, int64_t count, double& sum);
void AddSquares(const float* x, int64_t count, double mean, double& squares);
// Of `elements` elements; squares of the distances from sum / elements.
Moments MomentsOf(double elements, double sum, double squares);
double InverseDeviation(double variance, double epsilon);
// What a channel's elements become: y = (x - mean) * inverse * scale + shift; y may be x.
struct Norm {
  double mean = 0, inverse = 0, scale = 0, shift = 0;
};
void Normalize(const Norm& norm, const float* x, int64_t count, float* y);
struct NormGradient {
  double scale = 0, shift = 0;
};
void AddNormGradient(const Norm& norm, const float* dy, const float* x, int64_t count,
                     NormGradient& sums);
// dx = scale * inverse * (dy - dshift / n - u * dscale / n), u = (x - mean) * inverse, n the channel's
// elements; dx may be dy.
void NormalizeGradient(const Norm& norm, const NormGradient& sums, double elements, const float* dy,
                       const float* x, int64_t count, float* dx);

}  // namespace runnel::small
