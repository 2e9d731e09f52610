// The 24 kernels of FP32: twelve unrollings, rows or columns outside.

#include "kernels/backends/small/primitives/matrix_body.h"

namespace runnel::small {

template <>
MatrixKernels<Float32Rule> KernelsOf<Float32Rule>() {
  using Rule = Float32Rule;
  static constexpr MatrixKernel<Rule> kernels[] = {
      ByRows<Rule, 1, 1>("naive"),     ByRows<Rule, 1, 1, 2>("u2"),
      ByRows<Rule, 1, 2>("1x2"),       ByRows<Rule, 1, 4>("1x4"),
      ByRows<Rule, 1, 8>("1x8"),       ByRows<Rule, 2, 1>("2x1"),
      ByRows<Rule, 4, 1>("4x1"),       ByRows<Rule, 8, 1>("8x1"),
      ByRows<Rule, 2, 2>("2x2"),       ByRows<Rule, 2, 4>("2x4"),
      ByRows<Rule, 4, 2>("4x2"),       ByRows<Rule, 4, 4>("4x4"),
      ByColumns<Rule, 1, 1>("mnaive"), ByColumns<Rule, 1, 1, 2>("mu2"),
      ByColumns<Rule, 1, 2>("m1x2"),   ByColumns<Rule, 1, 4>("m1x4"),
      ByColumns<Rule, 1, 8>("m1x8"),   ByColumns<Rule, 2, 1>("m2x1"),
      ByColumns<Rule, 4, 1>("m4x1"),   ByColumns<Rule, 8, 1>("m8x1"),
      ByColumns<Rule, 2, 2>("m2x2"),   ByColumns<Rule, 2, 4>("m2x4"),
      ByColumns<Rule, 4, 2>("m4x2"),   ByColumns<Rule, 4, 4>("m4x4"),
  };
  return {kernels, sizeof(kernels) / sizeof(kernels[0])};
}

}  // namespace runnel::small
