#pragma once

// Single kernels of backend cpu, for those who time them.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/tuner.h"
#include "kernels/ir/conv_shape.h"
#include "kernels/ir/program.h"

namespace runnel::cpu {

// A convolution or linear layer in FP32 as training has it: the peer of its time in integers.
// Operands of its own, channels-last as inside a stage, with small values at first. One thread at a
// time calls it; `pool` is borrowed.
class LoneConv {
 public:
  // shape: of one sample; batch: samples at a time, >= 1.
  LoneConv(const ConvShape& shape, int64_t batch, ThreadPool* pool);
  LoneConv(const LoneConv&) = delete;
  LoneConv& operator=(const LoneConv&) = delete;

  absl::Span<float> x() { return absl::MakeSpan(x_); }              // NHWC
  absl::Span<float> weights() { return absl::MakeSpan(weights_); }  // OIHW
  absl::Span<float> bias() { return absl::MakeSpan(bias_); }        // out_c
  absl::Span<const float> y() const { return y_; }                  // NHWC

  // y = x convolved with the weights, + bias; what follows a convolution (a ReLU) is left out.
  void Run();

 private:
  std::vector<float> x_, weights_, bias_, y_;
  std::array<Buffer, 4> buffers_;
  std::array<Operand, 3> inputs_;
  std::array<Operand, 1> outputs_;
  Instruction instruction_;
  StepContext context_;
  Workspace workspace_;
  Call call_;
};

class LoneKernelTimer final : public KernelTimer {
 public:
  explicit LoneKernelTimer(int threads) : threads_(threads) {}
  std::vector<double> ConvSeconds(absl::Span<const ConvShape> shapes, int64_t batch,
                                  int passes) override;
  double MeasureInt8Peak() override;

 private:
  const int threads_;
};

}  // namespace runnel::cpu
