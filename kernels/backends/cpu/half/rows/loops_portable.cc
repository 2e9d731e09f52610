#include <cmath>

#include "kernels/backends/cpu/fp32/rows/outer_kernels.h"
#include "kernels/backends/cpu/fp32/rows/product_kernels.h"
#include "kernels/backends/cpu/fp32/rows/transformer_kernels.h"
#include "kernels/backends/cpu/fp32/rows/vec_portable.h"
#include "kernels/backends/cpu/half/loops.h"
#include "proto/base/tensor/small_float.h"

namespace runnel::half {
namespace {

#include "kernels/backends/cpu/half/rows/loops_body.inc"

// Where the machine has no fused multiply-add, the library's is slow and right.
struct VecFused : fp32::VecPortable {
  static Reg Fma(Reg a, Reg b, Reg c) {
    for (int i = 0; i < kWidth; ++i) c.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
    return c;
  }
};

constexpr Loops MakePortableLoops() {
  Loops loops = MakeLoops(Isa::kPortable);
  loops.product = fp32::RunProduct<VecFused>;
  loops.outer_product = fp32::RunOuterProduct<VecFused>;
  loops.row_product = fp32::RunRowProduct<VecFused>;
  return loops;
}

}  // namespace

extern const Loops kPortableLoops;
constinit const Loops kPortableLoops = MakePortableLoops();

}  // namespace runnel::half
