// Compiled for AVX-512 F: nothing but instances of the templates with VecAvx512 may be here, so
// that no function which others could link against needs it.

#if defined(__x86_64__)
#include "kernels/backends/cpu/fp32/rows/make_kernels.h"
#include "kernels/backends/cpu/fp32/rows/vec_avx512.h"

namespace runnel::fp32 {

constinit const Kernels kAvx512Kernels = MakeKernels<VecAvx512>("avx512", Isa::kAvx512);

}  // namespace runnel::fp32
#endif
