#include "compress/kernels/codec_kernels.h"

#include <array>

namespace runnel {
namespace {

struct Row {
  const CodecKernels* kernels;
  bool (*supported)();
};

// Best first.
constexpr Row kRows[] = {
#if defined(__x86_64__)
    {&kAvx512CodecKernels,
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("popcnt");
     }},
    {&kAvx2CodecKernels,
     [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt"); }},
#elif defined(__aarch64__)
    {&kNeonCodecKernels, [] { return true; }},  // a part of every 64-bit ARM
#endif
    {&kScalarCodecKernels, [] { return true; }},
};

struct Supported {
  std::array<const CodecKernels*, std::size(kRows)> kernels = {};
  size_t count = 0;
};

const Supported& Probe() {
  static const Supported supported = [] {
    Supported found;
    for (const Row& row : kRows) {
      if (row.supported()) found.kernels[found.count++] = row.kernels;
    }
    return found;
  }();
  return supported;
}

}  // namespace

double MergeLanes(const SumLanes& lanes) {
  SumLanes merged = lanes;
  for (int width = kSumLanes / 2; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) merged[j] += merged[j + width];
  }
  return merged[0];
}

absl::Span<const CodecKernels* const> SupportedCodecKernels() {
  const Supported& supported = Probe();
  return absl::MakeConstSpan(supported.kernels.data(), supported.count);
}

const CodecKernels& BestCodecKernels() { return *SupportedCodecKernels().front(); }

}  // namespace runnel
