#include "kernels/backends/cpu/integer/loops.h"

namespace runnel::cpu {
namespace {
constexpr int kVectorBytes = 16;
#include "kernels/backends/cpu/integer/loops_body.inc"
}  // namespace

extern const IntegerLoops kPortableIntegerLoops;
const IntegerLoops kPortableIntegerLoops = MakeLoops(Isa::kPortable);

}  // namespace runnel::cpu
