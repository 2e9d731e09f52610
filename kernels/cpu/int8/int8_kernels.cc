#include "kernels/cpu/int8/int8_kernels.h"

#include <array>
#include <cstddef>
#include <iterator>

#include "kernels/cpu/int8/int8_conv.h"
#include "kernels/cpu/isa.h"

namespace runnel::cpu {
namespace {

struct Row {
  const Int8Kernels* kernels;
  bool (*supported)(const CpuFeatures&);
};

// Best first.
constexpr Row kRows[] = {
#if defined(__x86_64__)
    {&kAvx512VnniInt8Kernels, [](const CpuFeatures& host) { return host.avx512_vnni; }},
    {&kAvx512Int8Kernels, [](const CpuFeatures& host) { return host.avx512; }},
    {&kAvxVnniInt8Kernels, [](const CpuFeatures& host) { return host.avx_vnni; }},
    {&kAvx2Int8Kernels, [](const CpuFeatures& host) { return host.avx2; }},
#endif
#if defined(__aarch64__)
    {&kNeonI8mmInt8Kernels, [](const CpuFeatures& host) { return host.neon_i8mm; }},
    {&kNeonDotprodInt8Kernels, [](const CpuFeatures& host) { return host.neon_dotprod; }},
    {&kNeonInt8Kernels, [](const CpuFeatures& host) { return host.neon; }},
#endif
    {&kPortableInt8Kernels, [](const CpuFeatures&) { return true; }},
};

struct Supported {
  std::array<const Int8Kernels*, std::size(kRows)> kernels = {};
  size_t count = 0;
};

const Supported& Probe() {
  static const Supported supported = [] {
    Supported found;
    for (const Row& row : kRows) {
      if (row.supported(HostFeatures())) found.kernels[found.count++] = row.kernels;
    }
    return found;
  }();
  return supported;
}

}  // namespace

absl::Span<const Int8Kernels* const> SupportedInt8Kernels() {
  const Supported& supported = Probe();
  return absl::MakeConstSpan(supported.kernels.data(), supported.count);
}

const Int8Kernels& BestInt8Kernels() { return *SupportedInt8Kernels().front(); }

}  // namespace runnel::cpu
