#pragma once

// A kRealProductToCodes made ready: a convolution that stays in FP32. Its sums are taken in one
// order (taps, then inputs) without fused multiply-add: the same bytes on all instruction sets.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/codes/code_loops.h"
#include "kernels/ir/arithmetic/code_rule.h"
#include "kernels/ir/conv_shape.h"

namespace runnel::cpu {

class RealConv {
 public:
  // shape: of one sample. weights: OHWI.
  RealConv(const ConvShape& shape, absl::Span<const float> weights, absl::Span<const float> bias,
           const CodeRule& rule);

  // x: FP32 or int8 codes, y: int8 codes or FP32; both NHWC.
  void Run(const Machine& machine, int64_t batch, const Operand& x, const Operand& y) const;
  // What it keeps of the weights.
  int64_t bytes() const { return static_cast<int64_t>(packed_.size() * sizeof(float)); }

 private:
  void SumAt(const CodeLoops& loops, const float* image, int64_t position, float* sums) const;
  void RunSample(const CodeLoops& loops, const float* image, float* sums, int8_t* codes) const;

  const ConvShape shape_;
  const CodeRule rule_;
  std::vector<float> packed_;  // (group, tap, in, out of the group)
  std::vector<float> bias_;
};

}  // namespace runnel::cpu
