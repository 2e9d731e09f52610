#include "kernels/backends/cpu/fp32/row_source.h"

#include <algorithm>

namespace runnel::fp32 {

void RowSource::Make(const Kernels& kernels, int64_t row, int64_t count, float* to) const {
  const int64_t at = row * channels;
  switch (kind) {
    case Kind::kPlain:
      std::copy_n(x + at, count * channels, to);
      return;
    case Kind::kNormalised:
      kernels.normalise(x + at, count, channels, norm, to);
      return;
    case Kind::kGradient:
      kernels.normalise_gradient(dy + at, x + at, count, channels, norm, a, b, to);
      return;
  }
}

const float* RowSource::Rows(const Kernels& kernels, int64_t row, int64_t count,
                             float* buffer) const {
  if (!made()) return x + row * channels;
  float* to = place != nullptr ? place + row * channels : buffer;
  Make(kernels, row, count, to);
  return to;
}

}  // namespace runnel::fp32
