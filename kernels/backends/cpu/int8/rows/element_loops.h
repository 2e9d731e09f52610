#pragma once

// Rescaling and depthwise loops in plain C++, from element `begin` on: the specification, and the
// ends of the vector loops. Static for the reason that packing_loops.h gives.

#include <cstdint>

#include "kernels/backends/cpu/int8/int8_kernels.h"

namespace runnel::cpu {

static inline uint32_t Magnitude(int32_t value) {
  return value < 0 ? 0u - static_cast<uint32_t>(value) : static_cast<uint32_t>(value);
}

// |x| -> |rounded x|, Rounding::kPseudoStochastic; 0 <= shift <= 31.
static inline uint32_t RoundMagnitudePseudoStochastic(uint32_t x, int shift) {
  const int half = shift / 2;
  const uint32_t rest = x & ((1u << shift) - 1);
  const uint32_t high = rest >> half;
  const uint32_t low = (rest & ((1u << half) - 1)) << (shift & 1);
  return (x >> shift) + (high > low ? 1u : 0u);
}

// The same for Rounding::kHalfAway.
static inline uint32_t RoundMagnitudeHalfAway(uint32_t x, int shift) {
  return shift == 0 ? x : (x + (1u << (shift - 1))) >> shift;
}

// The signed mantissa of a rounded magnitude, after ReLU and mask.
static inline int8_t FinishMantissa(uint32_t magnitude, bool negative, bool relu, bool masked) {
  const int clipped = magnitude > 127 ? 127 : static_cast<int>(magnitude);
  if (masked || (relu && negative)) return 0;
  return static_cast<int8_t>(negative ? -clipped : clipped);
}

static inline void RescalePseudoStochasticFrom(int64_t begin, const int32_t* acc, int64_t n,
                                               int shift, bool relu, const int8_t* mask,
                                               int8_t* out) {
  for (int64_t i = begin; i < n; ++i) {
    const uint32_t rounded = RoundMagnitudePseudoStochastic(Magnitude(acc[i]), shift);
    out[i] = FinishMantissa(rounded, acc[i] < 0, relu, mask != nullptr && mask[i] <= 0);
  }
}

static inline void RescaleHalfAwayFrom(int64_t begin, const int32_t* acc, int64_t n, int shift,
                                       bool relu, const int8_t* mask, int8_t* out) {
  for (int64_t i = begin; i < n; ++i) {
    const uint32_t rounded = RoundMagnitudeHalfAway(Magnitude(acc[i]), shift);
    out[i] = FinishMantissa(rounded, acc[i] < 0, relu, mask != nullptr && mask[i] <= 0);
  }
}

static inline uint32_t MaxAbsFrom(int64_t begin, const int32_t* acc, int64_t n, uint32_t so_far) {
  for (int64_t i = begin; i < n; ++i) {
    const uint32_t magnitude = Magnitude(acc[i]);
    so_far = so_far > magnitude ? so_far : magnitude;
  }
  return so_far;
}

static inline void SubtractSaturatingFrom(int64_t begin, const int8_t* w, const int8_t* g,
                                          int64_t n, int8_t* out) {
  for (int64_t i = begin; i < n; ++i) {
    const int difference = w[i] - g[i];
    out[i] = static_cast<int8_t>(difference > 127 ? 127 : difference < -127 ? -127 : difference);
  }
}

// Blocks of this many channels have their sums in registers or at least in the nearest cache.
static constexpr int64_t kDepthwiseBlock = 64;

// Channels from `begin` on.
static inline void DepthwiseRowFrom(int64_t begin, const int8_t* const* x, int64_t x_step,
                                    const int8_t* const* w, int taps, int64_t pixels,
                                    int64_t channels, int32_t* acc, int64_t acc_step,
                                    uint32_t* max_lanes) {
  uint32_t largest = 0;
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c0 = begin; c0 < channels; c0 += kDepthwiseBlock) {
      const int64_t count = channels - c0 < kDepthwiseBlock ? channels - c0 : kDepthwiseBlock;
      int32_t sums[kDepthwiseBlock] = {};
      for (int t = 0; t < taps; ++t) {
        const int8_t* from = x[t] + p * x_step + c0;
        const int8_t* weight = w[t] + c0;
        for (int64_t c = 0; c < count; ++c) sums[c] += from[c] * weight[c];
      }
      for (int64_t c = 0; c < count; ++c) {
        acc[p * acc_step + c0 + c] = sums[c];
        const uint32_t magnitude = Magnitude(sums[c]);
        largest = largest > magnitude ? largest : magnitude;
      }
    }
  }
  if (max_lanes != nullptr && largest > max_lanes[0]) max_lanes[0] = largest;
}

static inline void DepthwiseRowLoop(const int8_t* const* x, int64_t x_step, const int8_t* const* w,
                                    int taps, int64_t pixels, int64_t channels, int32_t* acc,
                                    int64_t acc_step, uint32_t* max_lanes) {
  DepthwiseRowFrom(0, x, x_step, w, taps, pixels, channels, acc, acc_step, max_lanes);
}

static inline void DepthwiseWeightRowLoop(const int8_t* dy, int64_t dy_step, const int8_t* x,
                                          int64_t x_step, int64_t pixels, int64_t channels,
                                          int32_t* dw) {
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c = 0; c < channels; ++c) dw[c] += dy[p * dy_step + c] * x[p * x_step + c];
  }
}

}  // namespace runnel::cpu
