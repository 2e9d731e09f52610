#if defined(__aarch64__)

#include "kernels/backends/cpu/half/loops.h"

namespace runnel::half {
namespace {
#include "kernels/backends/cpu/half/rows/loops_body.inc"
}  // namespace

extern const Loops kNeonLoops;
constinit const Loops kNeonLoops = MakeLoops(Isa::kNeon);

}  // namespace runnel::half
#endif
