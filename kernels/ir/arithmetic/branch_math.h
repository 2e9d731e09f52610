#pragma once

// Loops of the instructions where branches of a network meet: channel factors and joined channels.
// The same operations in the same order whichever way the values lie, so that every backend gives
// the same bytes. Pure; any thread.

#include <algorithm>
#include <cstdint>

namespace runnel::branch {

// (n, c, positions) in memory: row-major, or channels last.
struct Planes {
  int64_t samples = 1, channels = 1, positions = 1;
  bool channels_last = false;

  int64_t elements() const { return samples * channels * positions; }
  // Runs of channels that lie side by side: of one sample, or of one position of it.
  int64_t runs() const { return channels_last ? samples * positions : samples; }
  int64_t run_of_channel() const { return channels_last ? 1 : positions; }
};

// y = x * factor[sample][channel].
inline void MultiplyChannels(const float* x, const float* factor, const Planes& planes, float* y) {
  const int64_t c = planes.channels, p = planes.positions;
  for (int64_t n = 0; n < planes.samples; ++n, factor += c) {
    if (planes.channels_last) {
      for (int64_t i = 0; i < p; ++i, x += c, y += c) {
        for (int64_t k = 0; k < c; ++k) y[k] = x[k] * factor[k];
      }
      continue;
    }
    for (int64_t k = 0; k < c; ++k, x += p, y += p) {
      for (int64_t i = 0; i < p; ++i) y[i] = x[i] * factor[k];
    }
  }
}

// sums[sample][channel] = the sum of a * b over the positions, in ascending order, in double.
inline void SumProducts(const float* a, const float* b, const Planes& planes, float* sums) {
  const int64_t c = planes.channels, p = planes.positions;
  const int64_t next = planes.channels_last ? c : 1, channel = planes.channels_last ? 1 : p;
  for (int64_t n = 0; n < planes.samples; ++n) {
    for (int64_t k = 0; k < c; ++k) {
      const int64_t at = n * c * p + k * channel;
      double sum = 0;
      for (int64_t i = 0; i < p; ++i)
        sum += static_cast<double>(a[at + i * next]) * static_cast<double>(b[at + i * next]);
      sums[n * c + k] = static_cast<float>(sum);
    }
  }
}

// Copies `count` channels, from channel `first` of x to channel `to` of y. Both have the samples,
// positions and order of `planes`, and x_channels and y_channels.
inline void CopyChannels(const float* x, int64_t x_channels, int64_t first, const Planes& planes,
                         int64_t count, float* y, int64_t y_channels, int64_t to) {
  const int64_t unit = planes.run_of_channel();
  for (int64_t run = 0; run < planes.runs(); ++run) {
    const float* const from = x + (run * x_channels + first) * unit;
    std::copy(from, from + count * unit, y + (run * y_channels + to) * unit);
  }
}

// y: channel j * groups + g is x's g * (channels / groups) + j; of the whole planes.
inline void ShuffleChannels(const float* x, const Planes& planes, int64_t groups, float* y) {
  const int64_t unit = planes.run_of_channel(), each = planes.channels / groups;
  for (int64_t run = 0; run < planes.runs(); ++run, x += planes.channels * unit) {
    for (int64_t j = 0; j < each; ++j) {
      for (int64_t g = 0; g < groups; ++g, y += unit)
        std::copy_n(x + (g * each + j) * unit, unit, y);
    }
  }
}

inline float HardSigmoid(float x) {
  return std::min(std::max(x * (1.0f / 6.0f) + 0.5f, 0.0f), 1.0f);
}
inline float HardSigmoidSlope(float y) { return y > 0 && y < 1 ? 1.0f / 6.0f : 0.0f; }

}  // namespace runnel::branch
