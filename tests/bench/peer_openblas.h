#pragma once

#include <cstdint>

namespace runnel::bench {

// c[m][n] = a[m][k] * transposed b[n][k], FP32, by OpenBLAS's sgemm.
void OpenBlasGemm(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c);

}  // namespace runnel::bench
