#include "kernels/backends/cpu/fp32/kernel_table.h"

#include <array>
#include <iterator>

namespace runnel::fp32 {
namespace {

struct Row {
  const Kernels* kernels;
  bool (*supported)();
};

// Best first.
constexpr Row kRows[] = {
#if defined(__x86_64__)
    {&kAvx512Kernels, [] { return __builtin_cpu_supports("avx512f") != 0; }},
    {&kAvx2Kernels,
     [] { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }},
#elif defined(__aarch64__)
    {&kNeonKernels, [] { return true; }},
#endif
    {&kPortableKernels, [] { return true; }},
};

struct Supported {
  std::array<const Kernels*, std::size(kRows)> kernels = {};
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

absl::Span<const Kernels* const> SupportedKernels() {
  const Supported& supported = Probe();
  return absl::MakeConstSpan(supported.kernels.data(), supported.count);
}

}  // namespace runnel::fp32
