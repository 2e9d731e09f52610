#pragma once

// The arithmetic of multi-bit quantization that is not a loop over a tensor's bytes (AccEPT 3.3,
// equations 1-5). x and stored alphas are FP32;
// levels, thresholds, sums and solves are double in a fixed order, rounded to FP32 once.
//
// Pure functions; any thread.

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/kernels/codec_kernels.h"

namespace runnel {

// Coefficients alpha_1..alpha_k in the first k places.
using Alphas = std::array<float, kMaxMbqBits>;

// beta of step t >= 1: min(0.9, (1 + t) / (10 + t)).
double EmaWeight(int64_t t);

// Residual greedy start (section 3): alpha_i = mean |r|, r -= alpha_i sign(r) with sign(0) = +1;
// as FP32, sorted descending. All of x is finite, n >= 1.
Alphas GreedyAlphas(const float* x, size_t n, int k);

// The value of a code: sum of +-alpha_i in the order i = 1..k, b_1 the most significant bit.
double LevelOf(const Alphas& alpha, int k, int code);

// Tables for the nearest level (section 5): levels sorted, equal ones by code; thresholds are
// midpoints; x on a threshold belongs to the lower level. `centre` is added to every level.
MbqSearch MakeSearch(const Alphas& alpha, int k, double centre = 0);

// The receiver's value of each code: FP32(level - mean_error), held within the finite range.
MbqLevels MakeLevels(const Alphas& alpha, int k, float mean_error);

// Least squares (section 4). False if singular: a pivot of the Cholesky factorisation of B^T B is
// below 1e-9 n. alpha_star in double, first k places.
bool SolveAlphas(const MbqSums& sums, size_t n, int k, std::array<double, kMaxMbqBits>* alpha_star);

// As SolveAlphas with a ridge of 1e-6 n: alphas that the planes do not determine go to 0, and no
// system is singular.
std::array<double, kMaxMbqBits> RidgeAlphas(const MbqSums& sums, size_t n, int k);

// As RidgeAlphas for levels that begin at 0: a plane adds 2 alpha_i or nothing.
std::array<double, kMaxMbqBits> RidgeAlphasFromZero(const MbqSums& sums, size_t n, int k);

// FP32(beta alpha + (1 - beta) alpha_star), index by index. False if a result is not finite.
bool MixAlphas(const Alphas& alpha, const std::array<double, kMaxMbqBits>& alpha_star, int k,
               double beta, Alphas* mixed);

// The mean of (level - x) over the encoded elements, held within the finite range.
float MeanError(const Alphas& alpha, const MbqSums& sums, size_t n, int k);

// The alphas that are kept for the next step: |alpha_i| sorted descending.
Alphas Canonical(const Alphas& alpha, int k);

}  // namespace runnel
