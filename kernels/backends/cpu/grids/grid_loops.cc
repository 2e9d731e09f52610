#include "kernels/backends/cpu/grids/grid_loops.h"

#include <vector>

#include "proto/base/kernel_rows.h"

namespace runnel::cpu {

extern const GridLoops kPortableGridLoops;
#if defined(__x86_64__)
extern const GridLoops kAvx2GridLoops;
extern const GridLoops kAvx512GridLoops;
#elif defined(__aarch64__)
extern const GridLoops kNeonGridLoops;
#endif

const GridLoops& GridLoopsFor(Isa isa) {
  static constexpr const GridLoops* kTable[] = {
#if defined(__x86_64__)
    &kAvx512GridLoops,
    &kAvx2GridLoops,
#elif defined(__aarch64__)
    &kNeonGridLoops,
#endif
    &kPortableGridLoops,
  };
  static const std::vector<const GridLoops*> rows = SupportedRows(kTable);
  return BestRowWithin(rows, isa);
}

}  // namespace runnel::cpu
