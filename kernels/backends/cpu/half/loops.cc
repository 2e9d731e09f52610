#include "kernels/backends/cpu/half/loops.h"

#include <vector>

#include "proto/base/host/kernel_rows.h"

namespace runnel::half {

extern const Loops kPortableLoops;
#if defined(__x86_64__)
extern const Loops kAvx2Loops;
extern const Loops kAvx512Loops;
#elif defined(__aarch64__)
extern const Loops kNeonLoops;
#endif

const Loops& LoopsFor(Isa isa) {
  static constexpr const Loops* kTable[] = {
#if defined(__x86_64__)
    &kAvx512Loops,
    &kAvx2Loops,
#elif defined(__aarch64__)
    &kNeonLoops,
#endif
    &kPortableLoops,
  };
  static const std::vector<const Loops*> rows = SupportedRows(kTable);
  return BestRowWithin(rows, isa);
}

}  // namespace runnel::half
