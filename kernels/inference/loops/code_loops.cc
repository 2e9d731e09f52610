#include "kernels/inference/loops/code_loops.h"

#include <vector>

#include "absl/strings/match.h"
#include "kernels/cpu/isa.h"

namespace runnel::inference {

extern const CodeLoops kPortableCodeLoops;
#if defined(__x86_64__)
extern const CodeLoops kAvx2CodeLoops;
extern const CodeLoops kAvx512CodeLoops;
extern const CodeLoops kAvx512VnniCodeLoops;
#endif

absl::Span<const CodeLoops* const> SupportedCodeLoops() {
  static const std::vector<const CodeLoops*> supported = [] {
    std::vector<const CodeLoops*> rows;
#if defined(__x86_64__)
    if (cpu::HostFeatures().avx512_vnni) rows.push_back(&kAvx512VnniCodeLoops);
    if (cpu::HostFeatures().avx512) rows.push_back(&kAvx512CodeLoops);
    if (cpu::HostFeatures().avx2) rows.push_back(&kAvx2CodeLoops);
#endif
    rows.push_back(&kPortableCodeLoops);
    return rows;
  }();
  return supported;
}

const CodeLoops& CodeLoopsFor(absl::string_view int8_kernels) {
#if defined(__x86_64__)
  if (absl::StartsWith(int8_kernels, "avx512_vnni")) return kAvx512VnniCodeLoops;
  if (absl::StartsWith(int8_kernels, "avx512")) return kAvx512CodeLoops;
  if (absl::StartsWith(int8_kernels, "avx")) return kAvx2CodeLoops;
#else
  static_cast<void>(int8_kernels);
#endif
  return kPortableCodeLoops;
}

}  // namespace runnel::inference
