#include "kernels/backends/cpu/grids/grid_loops.h"

#include <vector>

#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "proto/base/host/kernel_rows.h"

namespace runnel::cpu {

extern const GridLoops kPortableGridLoops;
#if defined(__x86_64__)
extern const GridLoops kAvx2GridLoops;
extern const GridLoops kAvx512GridLoops;
extern const Int8Kernels kAvx2NarrowInt8Kernels;
extern const Int8Kernels kAvx512NarrowInt8Kernels;
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

const Int8Kernels& RowOfCodes(const Machine& machine, [[maybe_unused]] int right_bits) {
  if (machine.int8->takes_lowest) return *machine.int8;
#if defined(__x86_64__)
  constexpr int kNarrowBits = 7;
  if (right_bits <= kNarrowBits) {
    for (const Int8Kernels* row : {&kAvx512NarrowInt8Kernels, &kAvx2NarrowInt8Kernels}) {
      if (row->isa == machine.int8->isa) return *row;
    }
  }
#endif
  static constexpr const Int8Kernels* kTable[] = {
#if defined(__x86_64__)
    &kAvx512LowestInt8Kernels,
    &kAvx2LowestInt8Kernels,
#elif defined(__aarch64__)
    &kNeonI8mmLowestInt8Kernels,
    &kNeonDotprodLowestInt8Kernels,
    &kNeonLowestInt8Kernels,
#endif
    &kPortableInt8Kernels,
  };
  for (const Int8Kernels* row : kTable) {
    if (row->isa == machine.int8->isa) return *row;
  }
  return kPortableInt8Kernels;
}

}  // namespace runnel::cpu
