#include "kernels/backends/cpu/fp32/rows/make_kernels.h"
#include "kernels/backends/cpu/fp32/rows/vec_portable.h"

namespace runnel::fp32 {

constinit const Kernels kPortableKernels = MakeKernels<VecPortable>("portable", Isa::kPortable);

}  // namespace runnel::fp32
