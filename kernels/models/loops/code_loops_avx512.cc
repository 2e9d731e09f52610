#include "kernels/models/loops/avx512_requantize.h"
#include "kernels/models/loops/code_loops.h"

namespace runnel::inference {
namespace {

constexpr int kVectorBytes = 64;
#include "kernels/models/loops/code_loops_body.inc"

}  // namespace

extern const CodeLoops kAvx512CodeLoops;
const CodeLoops kAvx512CodeLoops = MakeLoops("avx512", Isa::kAvx512);

}  // namespace runnel::inference
