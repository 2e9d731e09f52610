#include "kernels/backends/cpu/codes/code_loops.h"

#include <vector>

#include "proto/base/host/kernel_rows.h"

namespace runnel::cpu {

extern const CodeLoops kPortableCodeLoops;
#if defined(__x86_64__)
extern const CodeLoops kAvx2CodeLoops;
extern const CodeLoops kAvx512CodeLoops;
extern const CodeLoops kAvx512VnniCodeLoops;
#elif defined(__aarch64__)
extern const CodeLoops kNeonCodeLoops;
extern const CodeLoops kNeonDotprodCodeLoops;
#endif

absl::Span<const CodeLoops* const> SupportedCodeLoops() {
  static constexpr const CodeLoops* kTable[] = {
#if defined(__x86_64__)
    &kAvx512VnniCodeLoops,
    &kAvx512CodeLoops,
    &kAvx2CodeLoops,
#elif defined(__aarch64__)
    &kNeonDotprodCodeLoops,
    &kNeonCodeLoops,
#endif
    &kPortableCodeLoops
  };
  static const std::vector<const CodeLoops*> rows = SupportedRows(kTable);
  return rows;
}

const CodeLoops& CodeLoopsFor(Isa isa) { return BestRowWithin(SupportedCodeLoops(), isa); }

}  // namespace runnel::cpu
