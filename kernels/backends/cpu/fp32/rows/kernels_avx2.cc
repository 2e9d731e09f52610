// Compiled for AVX2 and FMA: nothing but instances of the templates with VecAvx2 may be here, so
// that no function which others could link against needs them.

#if defined(__x86_64__)
#include "kernels/backends/cpu/fp32/rows/make_kernels.h"
#include "kernels/backends/cpu/fp32/rows/vec_avx2.h"

namespace runnel::fp32 {

constinit const Kernels kAvx2Kernels = MakeKernels<VecAvx2>("avx2", Isa::kAvx2);

}  // namespace runnel::fp32
#endif
