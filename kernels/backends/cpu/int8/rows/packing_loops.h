#pragma once

// Packing in plain loops for any geometry: rows of kernels use them where they have nothing faster.
// In an anonymous namespace: each file that includes this must keep a copy of its own, compiled for
// its own instruction set. Weak symbols, as of a template elsewhere, the linker merges: the
// portable row would run another row's code (tests/kernels/cpu/isa_symbols_test.py).

#include <cstdint>

#include "kernels/backends/cpu/int8/int8_kernels.h"

namespace runnel::cpu {
namespace {

template <int kRows, int kGroup, uint8_t kBias>
struct PackingLoops {
  static void CopyA(const int8_t* src, int64_t src_stride, int64_t rows, int64_t bytes,
                    uint8_t* dst, int64_t dst_stride) {
    for (int64_t r = 0; r < rows; ++r) {
      const int8_t* from = src + r * src_stride;
      uint8_t* to = dst + r * dst_stride;
      for (int64_t i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(from[i]) ^ kBias;
      for (int64_t i = bytes; i < dst_stride; ++i) to[i] = kBias;
    }
  }

  static void PackA(const int8_t* src, int64_t src_stride, int64_t k, int64_t n, uint8_t* dst,
                    int64_t panel_stride) {
    for (int64_t first = 0; first < n; first += kRows, dst += panel_stride) {
      uint8_t* to = dst;
      for (int64_t i = 0; i < k; i += kGroup) {
        if (first + kRows <= n && i + kGroup <= k) {
          const int8_t* from = src + i * src_stride + first;
          for (int r = 0; r < kRows; ++r) {
            for (int g = 0; g < kGroup; ++g) {
              *to++ = static_cast<uint8_t>(from[g * src_stride + r]) ^ kBias;
            }
          }
          continue;
        }
        for (int64_t r = first; r < first + kRows; ++r) {
          for (int64_t g = i; g < i + kGroup; ++g) {
            *to++ = g < k && r < n ? static_cast<uint8_t>(src[g * src_stride + r]) ^ kBias : kBias;
          }
        }
      }
    }
  }

  static void PackBColumns(const int8_t* src, int64_t column_stride, int64_t k, int n, int width,
                           int8_t* panel) {
    for (int64_t i = 0; i < k; i += kGroup) {
      if (n == width && i + kGroup <= k) {  // nothing missing: without questions
        for (int j = 0; j < width; ++j, panel += kGroup) {
          __builtin_memcpy(panel, src + j * column_stride + i, kGroup);
        }
        continue;
      }
      for (int j = 0; j < width; ++j) {
        for (int64_t g = i; g < i + kGroup; ++g) {
          *panel++ = g < k && j < n ? src[j * column_stride + g] : int8_t{0};
        }
      }
    }
  }

  static void PackBRows(const int8_t* src, int64_t row_stride, int64_t k, int n, int width,
                        int8_t* panel) {
    for (int64_t i = 0; i < k; i += kGroup) {
      if (n == width && i + kGroup <= k) {
        const int8_t* from = src + i * row_stride;
        for (int j = 0; j < width; ++j) {
          for (int g = 0; g < kGroup; ++g) *panel++ = from[g * row_stride + j];
        }
        continue;
      }
      for (int j = 0; j < width; ++j) {
        for (int64_t g = i; g < i + kGroup; ++g) {
          *panel++ = g < k && j < n ? src[g * row_stride + j] : int8_t{0};
        }
      }
    }
  }

  static void ColumnStart(const int8_t* panel, const Int8Segment* segments, int segment_count,
                          int width, int32_t* start) {
    for (int s = 0; s < segment_count; ++s) {
      const int8_t* from = panel + segments[s].b_offset;
      for (int64_t step = 0; step < segments[s].steps; ++step) {
        for (int j = 0; j < width; ++j) {
          for (int g = 0; g < kGroup; ++g) start[j] -= kBias * int32_t{*from++};
        }
      }
    }
  }
};

}  // namespace
}  // namespace runnel::cpu
