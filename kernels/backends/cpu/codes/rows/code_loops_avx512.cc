#include "kernels/backends/cpu/codes/code_loops.h"
#include "kernels/backends/cpu/codes/rows/avx512_requantize.h"

namespace runnel::cpu {
namespace {

constexpr int kVectorBytes = 64;
#include "kernels/backends/cpu/codes/rows/code_loops_body.inc"

}  // namespace

extern const CodeLoops kAvx512CodeLoops;
const CodeLoops kAvx512CodeLoops = MakeLoops("avx512", Isa::kAvx512);

}  // namespace runnel::cpu
