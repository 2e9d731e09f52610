#include "tests/bench/peer_openblas.h"

#include <cblas.h>

namespace runnel::bench {

void OpenBlasGemm(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), depth = static_cast<int>(k);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, columns, depth, 1.0f, a, depth, b,
              depth, 0.0f, c, columns);
}

}  // namespace runnel::bench
