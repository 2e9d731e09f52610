#include "kernels/backends/cpu/codes/code_loops.h"

namespace runnel::cpu {
namespace {

constexpr int kVectorBytes = 16;
void Requantize(const CodeColumns& columns, const SumRows& rows);
#include "kernels/backends/cpu/codes/rows/code_loops_body.inc"

void Requantize(const CodeColumns& columns, const SumRows& rows) {
  RequantizeFrom(0, columns, rows);
}

}  // namespace

extern const CodeLoops kPortableCodeLoops;
const CodeLoops kPortableCodeLoops = MakeLoops("portable", Isa::kPortable);

}  // namespace runnel::cpu
