#pragma once

// The inner loops of codec int8: FP32 to mantissas of one exponent and back. The rows give the
// bytes of proto/base/tensor/quantize.h, which is the specification.
//
// Pure functions; any thread; pointers need no alignment beyond that of their type.

#include <cstddef>
#include <cstdint>

namespace runnel {

struct Int8Kernels {
  // x[e] * 2^-exponent, rounded half away from zero and held within +-127. x is finite,
  // |x[e] * 2^-exponent| <= 128.
  void (*encode)(const float* x, size_t n, int32_t exponent, std::byte* mantissas);
  // out[e] = mantissa * 2^exponent, rounded to FP32 where that is needed; exponent at most 121.
  // False if a mantissa is -128, which nobody sends; `out` is then unspecified.
  bool (*decode)(const std::byte* mantissas, size_t n, int32_t exponent, float* out);
};

extern const Int8Kernels kScalarInt8Kernels;
#if defined(__x86_64__)
extern const Int8Kernels kAvx2Int8Kernels;
extern const Int8Kernels kAvx512Int8Kernels;
#elif defined(__aarch64__)
extern const Int8Kernels kNeonInt8Kernels;
#endif

}  // namespace runnel
