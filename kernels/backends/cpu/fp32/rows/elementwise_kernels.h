#pragma once

// Loops that the compiler vectorises, once for each instruction set: V only names it. Only for
// kernels_*.cc.

#include "kernels/backends/cpu/fp32/kernel_table.h"

namespace runnel::fp32 {

// ivdep: where an output is one of the inputs, it is the very same memory.
template <typename V>
void Relu(const float* x, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] < 0 ? 0.0f : x[i];
}
template <typename V>
void Relu6(const float* x, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float low = x[i] < 0 ? 0.0f : x[i];
    y[i] = low > 6 ? 6.0f : low;
  }
}
template <typename V>
void ReluGradient(const float* dy, const float* y, int64_t count, float* dx) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = dy[i];
    dx[i] = y[i] <= 0 ? 0.0f : g;
  }
}
template <typename V>
void Relu6Gradient(const float* dy, const float* y, int64_t count, float* dx) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = dy[i];
    dx[i] = (y[i] <= 0) | (y[i] >= 6) ? 0.0f : g;
  }
}
// Eight elements a byte.
template <typename V, bool kHasTop>
void StoreReluMask(const float* y, int64_t count, uint8_t* mask) {
  constexpr int64_t kChunk = 256;
  uint8_t passes[kChunk];
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t size = count - begin < kChunk ? count - begin : kChunk;
    for (int64_t i = 0; i < size; ++i) {
      const float value = y[begin + i];
      const bool is_held = kHasTop ? (value <= 0) | (value >= 6) : value <= 0;
      passes[i] = is_held ? 0 : 1;
    }
    for (int64_t i = size; i % 8 != 0; ++i) passes[i] = 0;
    for (int64_t i = 0; i < size; i += 8) {
      uint64_t bytes;
      __builtin_memcpy(&bytes, passes + i, sizeof(bytes));
      // Byte k to bit 56 + k: no two products of bits meet.
      mask[(begin + i) / 8] = static_cast<uint8_t>(bytes * 0x0102040810204080 >> 56);
    }
  }
}
template <typename V>
void MaskedGradient(const float* dy, const uint8_t* mask, int64_t count, float* dx) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const int32_t bits = mask[i / 8];
    uint32_t values[8];
    __builtin_memcpy(values, dy + i, sizeof(values));
    for (int32_t k = 0; k < 8; ++k) values[k] &= static_cast<uint32_t>(-(bits >> k & 1));
    __builtin_memcpy(dx + i, values, sizeof(values));
  }
  for (; i < count; ++i) dx[i] = (mask[i / 8] >> i % 8 & 1) != 0 ? dy[i] : 0.0f;
}
template <typename V>
void Add(const float* a, const float* b, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}
template <typename V>
void Scale(const float* x, int64_t count, float factor, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}
template <typename V>
void TakeMaximum(const float* x, int64_t channels, int32_t position, float* best, int32_t* where) {
#pragma GCC ivdep
  for (int64_t c = 0; c < channels; ++c) {
    const bool take = !(x[c] <= best[c]) & (best[c] == best[c]);
    best[c] = take ? x[c] : best[c];
    where[c] = take ? position : where[c];
  }
}

template <typename V>
void Transpose(const float* in, int64_t rows, int64_t columns, int64_t in_stride, float* out,
               int64_t out_stride) {
  constexpr int64_t kSide = V::kWidth;
  if (rows < kSide || columns < kSide) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) out[c * out_stride + r] = in[r * in_stride + c];
    }
    return;
  }
  // Writes from front to back: out of caches that is a third quicker than reading so. Where kSide
  // does not divide, the last square overlaps its neighbour.
  for (int64_t c = 0; c < columns; c += kSide) {
    const int64_t column = c + kSide <= columns ? c : columns - kSide;
    for (int64_t r = 0; r < rows; r += kSide) {
      const int64_t row = r + kSide <= rows ? r : rows - kSide;
      V::Transpose(in + row * in_stride + column, in_stride, out + column * out_stride + row,
                   out_stride);
    }
  }
}

// The words of Philox4x32's blocks `block` to `block` + 15 (proto/base/random.h), one block after
// the other: for register types that do not know a quicker way.
static inline void PhiloxWords(const uint32_t key[2], const uint32_t sequence[2], uint64_t block,
                               uint32_t words[64]) {
  constexpr int kLanes = 16;
  constexpr uint32_t kMultipliers[2] = {0xD2511F53u, 0xCD9E8D57u};
  constexpr uint32_t kWeyl[2] = {0x9E3779B9u, 0xBB67AE85u};
  uint32_t word[4][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t counter = block + static_cast<uint64_t>(lane);
    word[0][lane] = static_cast<uint32_t>(counter);
    word[1][lane] = static_cast<uint32_t>(counter >> 32);
    word[2][lane] = sequence[0];
    word[3][lane] = sequence[1];
  }
  uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 7; ++round, k0 += kWeyl[0], k1 += kWeyl[1]) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t p0 = uint64_t{kMultipliers[0]} * word[0][lane];
      const uint64_t p1 = uint64_t{kMultipliers[1]} * word[2][lane];
      word[0][lane] = static_cast<uint32_t>(p1 >> 32) ^ word[1][lane] ^ k0;
      word[1][lane] = static_cast<uint32_t>(p1);
      word[2][lane] = static_cast<uint32_t>(p0 >> 32) ^ word[3][lane] ^ k1;
      word[3][lane] = static_cast<uint32_t>(p0);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int w = 0; w < 4; ++w) words[4 * lane + w] = word[w][lane];
  }
}

template <typename V>
void DropoutMask(const uint32_t key[2], const uint32_t sequence[2], uint64_t block, int64_t count,
                 uint32_t threshold, float factor, float* mask) {
  constexpr int kWords = 64;
  for (int64_t i = 0; i < count; i += kWords, block += kWords / 4) {
    uint32_t words[kWords];
    if constexpr (requires { V::PhiloxWords(key, sequence, block, words); }) {
      V::PhiloxWords(key, sequence, block, words);
    } else {
      PhiloxWords(key, sequence, block, words);
    }
    for (int w = 0; w < kWords; ++w) mask[i + w] = (words[w] >> 8) >= threshold ? factor : 0.0f;
  }
}

// A dropped element is 0 even where x is infinite or NaN.
template <typename V>
void ApplyMask(const float* x, const float* mask, int64_t count, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float kept = x[i] * mask[i];
    y[i] = mask[i] == 0 ? 0.0f : kept;
  }
}

}  // namespace runnel::fp32
