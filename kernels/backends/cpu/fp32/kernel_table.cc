#include "kernels/backends/cpu/fp32/kernel_table.h"

#include <vector>

#include "proto/base/host/kernel_rows.h"

namespace runnel::fp32 {
namespace {

constexpr const Kernels* kTable[] = {
#if defined(__x86_64__)
    &kAvx512Kernels, &kAvx2Kernels,
#elif defined(__aarch64__)
    &kNeonKernels,
#endif
    &kPortableKernels};

}  // namespace

absl::Span<const Kernels* const> SupportedKernels() {
  static const std::vector<const Kernels*> rows = SupportedRows(kTable);
  return rows;
}

}  // namespace runnel::fp32
