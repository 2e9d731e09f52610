#include "kernels/backends/cpu/integer/loops.h"

#include <vector>

#include "proto/base/host/kernel_rows.h"

namespace runnel::cpu {

extern const IntegerLoops kPortableIntegerLoops;
#if defined(__x86_64__)
extern const IntegerLoops kAvx2IntegerLoops;
extern const IntegerLoops kAvx512IntegerLoops;
#endif

const IntegerLoops& IntegerLoopsFor(Isa isa) {
  static constexpr const IntegerLoops* kTable[] = {
#if defined(__x86_64__)
    &kAvx512IntegerLoops,
    &kAvx2IntegerLoops,
#endif
    &kPortableIntegerLoops
  };
  static const std::vector<const IntegerLoops*> rows = SupportedRows(kTable);
  return BestRowWithin(rows, isa);
}

}  // namespace runnel::cpu
