#include "compress/kernels/codec_kernels.h"

#include <vector>

#include "proto/base/host/kernel_rows.h"

namespace runnel {
namespace {

constexpr const CodecKernels* kTable[] = {
#if defined(__x86_64__)
    &kAvx512CodecKernels, &kAvx2CodecKernels,
#elif defined(__aarch64__)
    &kNeonCodecKernels,
#endif
    &kScalarCodecKernels};

}  // namespace

double MergeLanes(const SumLanes& lanes) {
  SumLanes merged = lanes;
  for (int width = kSumLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) merged[j] += merged[j + width];
  }
  return merged[0];
}

absl::Span<const CodecKernels* const> SupportedCodecKernels() {
  static const std::vector<const CodecKernels*> rows = SupportedRows(kTable);
  return rows;
}

const CodecKernels& BestCodecKernels() { return *SupportedCodecKernels().front(); }

}  // namespace runnel
