#include "kernels/backends/cpu/integer/loops.h"

namespace runnel::cpu {
namespace {
constexpr int kVectorBytes = 32;
#include "kernels/backends/cpu/integer/loops_body.inc"
}  // namespace

extern const IntegerLoops kAvx2IntegerLoops;
const IntegerLoops kAvx2IntegerLoops = MakeLoops(Isa::kAvx2);

}  // namespace runnel::cpu
