#include "kernels/backends/cpu/integer/loops.h"

namespace runnel::cpu {
namespace {
constexpr int kVectorBytes = 64;
#include "kernels/backends/cpu/integer/loops_body.inc"
}  // namespace

extern const IntegerLoops kAvx512IntegerLoops;
const IntegerLoops kAvx512IntegerLoops = MakeLoops(Isa::kAvx512);

}  // namespace runnel::cpu
