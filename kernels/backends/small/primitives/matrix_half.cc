// Kernels of 16-bit floats, with FP32 sums and with sums of their own type. Names as the paper's
// library has them; "simd2x4" is 1 x 2 sums of two lanes, "simd4x8" 2 x 4.

#include "kernels/backends/small/primitives/matrix_body.h"

namespace runnel::small {
namespace {

template <class Rule>
MatrixKernels<Rule> Kernels() {
  static constexpr MatrixKernel<Rule> kernels[] = {
      ByRows<Rule, 1, 1>("naive"),
      ByColumns<Rule, 1, 1>("mnaive"),
      ByRows<Rule, 2, 1>("2x1"),
      ByRows<Rule, 4, 1>("4x1"),
      ByRows<Rule, 8, 1>("8x1"),
      ByRows<Rule, 2, 4>("2x4"),
      ByRows<Rule, 1, 2, 2, 2>("simd2x4"),
      ByRows<Rule, 2, 4, 2, 2>("simd4x8"),
      ByColumns<Rule, 1, 2, 2, 2>("msimd2x4"),
      ByColumns<Rule, 2, 4, 2, 2>("msimd4x8"),
  };
  return {kernels, sizeof(kernels) / sizeof(kernels[0])};
}

}  // namespace

template <>
MatrixKernels<WideRule<F16>> KernelsOf<WideRule<F16>>() {
  return Kernels<WideRule<F16>>();
}
template <>
MatrixKernels<WideRule<Bf16>> KernelsOf<WideRule<Bf16>>() {
  return Kernels<WideRule<Bf16>>();
}
template <>
MatrixKernels<NarrowRule<F16>> KernelsOf<NarrowRule<F16>>() {
  return Kernels<NarrowRule<F16>>();
}
template <>
MatrixKernels<NarrowRule<Bf16>> KernelsOf<NarrowRule<Bf16>>() {
  return Kernels<NarrowRule<Bf16>>();
}

}  // namespace runnel::small
