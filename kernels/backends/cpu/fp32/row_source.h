#pragma once

// The rows (pixels of channels) that a convolution reads: as they lie in memory, or made from other
// rows block by block, so that results of a batch normalisation or of its gradient need not go
// through memory.

#include <cstdint>

#include "kernels/backends/cpu/fp32/kernel_table.h"

namespace runnel::fp32 {

struct RowSource {
  enum class Kind : uint8_t {
    kPlain,       // x
    kNormalised,  // norm(x)
    kGradient,    // dy * norm.factor where the activation is not flat, + (x * a + b)
  };
  Kind kind = Kind::kPlain;
  int64_t channels = 0;
  const float* x = nullptr;
  const float* dy = nullptr;
  Normalisation norm;
  const float* a = nullptr;
  const float* b = nullptr;
  float* place = nullptr;  // place for all made rows; null: they are not kept

  static RowSource Plain(const float* x, int64_t channels) {
    return {.channels = channels, .x = x};
  }
  bool made() const { return kind != Kind::kPlain; }

  // Makes rows [row, row + count) at `to`; copies plain ones.
  void Make(const Kernels& kernels, int64_t row, int64_t count, float* to) const;
  // The rows [row, row + count): in memory, or in `buffer` (count * channels floats), which is used
  // only where made() and there is no place.
  const float* Rows(const Kernels& kernels, int64_t row, int64_t count, float* buffer) const;
};

}  // namespace runnel::fp32
