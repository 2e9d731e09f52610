#include "kernels/backends/cpu/integer/loops.h"

namespace runnel::cpu {

extern const IntegerLoops kPortableIntegerLoops;
#if defined(__x86_64__)
extern const IntegerLoops kAvx2IntegerLoops;
extern const IntegerLoops kAvx512IntegerLoops;
#endif

const IntegerLoops& IntegerLoopsFor(absl::string_view name) {
#if defined(__x86_64__)
  if (name == "avx512") return kAvx512IntegerLoops;
  if (name == "avx2") return kAvx2IntegerLoops;
#else
  static_cast<void>(name);
#endif
  return kPortableIntegerLoops;
}

}  // namespace runnel::cpu
