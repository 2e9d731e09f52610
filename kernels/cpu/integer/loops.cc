#include "kernels/cpu/integer/loops.h"

namespace runnel::cpu {

extern const IntegerLoops kPortableIntegerLoops;
#if defined(__x86_64__)
extern const IntegerLoops kAvx2IntegerLoops;
extern const IntegerLoops kAvx512IntegerLoops;
#endif

const IntegerLoops& IntegerLoopsFor(const CpuFeatures& features) {
#if defined(__x86_64__)
  if (features.avx512) return kAvx512IntegerLoops;
  if (features.avx2) return kAvx2IntegerLoops;
#else
  static_cast<void>(features);
#endif
  return kPortableIntegerLoops;
}

}  // namespace runnel::cpu
