#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/backends/cpu/half/loops.h"

namespace runnel::half {
namespace {
#include "kernels/backends/cpu/half/rows/loops_body.inc"
}  // namespace

extern const Loops kAvx2Loops;
constinit const Loops kAvx2Loops = MakeLoops(Isa::kAvx2);

}  // namespace runnel::half
#endif
