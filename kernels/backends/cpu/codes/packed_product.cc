#include "kernels/backends/cpu/codes/packed_product.h"

#include <cstdlib>

#include "kernels/backends/cpu/int8/depthwise.h"
#include "kernels/backends/cpu/int8/gather_conv.h"

namespace runnel::cpu {

PackedProduct::PackedProduct(const Int8Kernels& kernels, const ConvShape& shape,
                             absl::Span<const int8_t> weights, bool merges_taps)
    : kernels_(kernels), shape_(shape), merges_taps_(merges_taps) {
  if (shape.groups > 1) {
    weights_.assign(weights.begin(), weights.end());
    return;
  }
  const GatherProblem problem = ProblemOf(shape);
  constexpr int64_t kAlignment = 64;
  panel_bytes_ = (AllPanelsBytes(kernels, problem) + kAlignment - 1) / kAlignment * kAlignment;
  panels_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, panel_bytes_)));
  PackAllPanels(kernels, problem, weights.data(), panels_.get());
}

GatherProblem PackedProduct::ProblemOf(const ConvShape& shape) const {
  return merges_taps_ ? MergeTapsOfRows(shape) : GatherProblemOf(shape, false);
}

ConvShape PackedProduct::ShapeOf(int64_t batch) const {
  ConvShape shape = shape_;
  shape.batch = batch;
  return shape;
}

int64_t PackedProduct::WorkspaceBytes(int64_t batch, int threads, bool to_sink) const {
  const ConvShape shape = ShapeOf(batch);
  if (panels_ != nullptr) {
    return GatherWorkspaceBytes(kernels_, ProblemOf(shape), threads, /*prepacked=*/true);
  }
  return to_sink ? DepthwiseToSinkBytes(shape, threads)
                 : Int8WorkspaceBytes(kernels_, shape, ConvPass::kForward, threads);
}

void PackedProduct::RunDense(const Machine& machine, std::byte* workspace, int64_t batch,
                             GatherOperands operands) const {
  operands.packed = panels_.get();
  operands.next = next_;
  RunGather({&kernels_, machine.pool, workspace}, ProblemOf(ShapeOf(batch)), operands);
}

void PackedProduct::Run(const Machine& machine, std::byte* workspace, int64_t batch,
                        const int8_t* x, int32_t* acc) const {
  if (panels_ != nullptr) {
    return RunDense(machine, workspace, batch, {.source = x, .out = acc});
  }
  Int8ConvForward({&kernels_, machine.pool, workspace}, ShapeOf(batch), x, weights_.data(), acc,
                  /*max_abs=*/nullptr);
}

void PackedProduct::Run(const Machine& machine, std::byte* workspace, int64_t batch,
                        const int8_t* x, SumsSink& sink) const {
  if (panels_ != nullptr) {
    return RunDense(machine, workspace, batch, {.source = x, .sink = &sink});
  }
  RunDepthwiseToSink({&kernels_, machine.pool, workspace}, ShapeOf(batch), x, weights_.data(),
                     sink);
}

void PackedProduct::Run(const Machine& machine, std::byte* workspace, int64_t batch,
                        const int8_t* x, const GatherCoding& coding) const {
  RunDense(machine, workspace, batch, {.source = x, .coding = &coding});
}

}  // namespace runnel::cpu
