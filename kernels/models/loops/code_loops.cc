#include "kernels/models/loops/code_loops.h"

#include <vector>

#include "absl/strings/match.h"
#include "kernels/backends/cpu/isa.h"

namespace runnel::inference {

extern const CodeLoops kPortableCodeLoops;
#if defined(__x86_64__)
extern const CodeLoops kAvx2CodeLoops;
extern const CodeLoops kAvx512CodeLoops;
extern const CodeLoops kAvx512VnniCodeLoops;
#endif
#if defined(__aarch64__)
extern const CodeLoops kNeonCodeLoops;
extern const CodeLoops kNeonDotprodCodeLoops;
#endif

absl::Span<const CodeLoops* const> SupportedCodeLoops() {
  static const std::vector<const CodeLoops*> supported = [] {
    std::vector<const CodeLoops*> rows;
#if defined(__x86_64__)
    if (cpu::HostFeatures().avx512_vnni) rows.push_back(&kAvx512VnniCodeLoops);
    if (cpu::HostFeatures().avx512) rows.push_back(&kAvx512CodeLoops);
    if (cpu::HostFeatures().avx2) rows.push_back(&kAvx2CodeLoops);
#endif
#if defined(__aarch64__)
    if (cpu::HostFeatures().neon_dotprod) rows.push_back(&kNeonDotprodCodeLoops);
    if (cpu::HostFeatures().neon) rows.push_back(&kNeonCodeLoops);
#endif
    rows.push_back(&kPortableCodeLoops);
    return rows;
  }();
  return supported;
}

const CodeLoops& CodeLoopsFor(absl::string_view int8_kernels) {
  if (int8_kernels == kPortableCodeLoops.name) return kPortableCodeLoops;
#if defined(__x86_64__)
  if (absl::StartsWith(int8_kernels, "avx512_vnni")) return kAvx512VnniCodeLoops;
  if (absl::StartsWith(int8_kernels, "avx512")) return kAvx512CodeLoops;
  if (absl::StartsWith(int8_kernels, "avx")) return kAvx2CodeLoops;
#endif
#if defined(__aarch64__)
  // Row "i8mm" goes by what else the processor has: the set does not imply SDOT.
  const bool has_dot = cpu::HostFeatures().neon_dotprod && int8_kernels != "neon";
  return has_dot ? kNeonDotprodCodeLoops : kNeonCodeLoops;
#endif
  return kPortableCodeLoops;
}

}  // namespace runnel::inference
