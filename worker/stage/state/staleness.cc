#include "worker/stage/state/staleness.h"

#include <algorithm>
#include <array>

namespace runnel {
namespace {

// Elements whose sum stays in the first-level cache while the versions are passed over.
constexpr int64_t kBlock = 1024;

}  // namespace

void AverageVersions(absl::Span<const float* const> versions, int64_t elements, float* out) {
  const auto count = static_cast<float>(versions.size());
  std::array<float, kBlock> sum;
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t size = std::min(kBlock, elements - begin);
    std::copy_n(versions[0] + begin, size, sum.begin());
    for (const float* version : versions.subspan(1)) {
      for (int64_t i = 0; i < size; ++i) sum[i] += version[begin + i];
    }
    for (int64_t i = 0; i < size; ++i) out[begin + i] = sum[i] / count;
  }
}

}  // namespace runnel
