// For every arm64 processor.

#if defined(__aarch64__)
#include "kernels/backends/cpu/fp32/rows/make_kernels.h"
#include "kernels/backends/cpu/fp32/rows/vec_neon.h"

namespace runnel::fp32 {

constinit const Kernels kNeonKernels = MakeKernels<VecNeon>("neon", Isa::kNeon);

}  // namespace runnel::fp32
#endif
