#include "kernels/models/product/packed_product.h"

#include <cstdlib>

#include "kernels/backends/cpu/int8/depthwise.h"
#include "kernels/backends/cpu/int8/gather_conv.h"

namespace runnel::inference {

PackedProduct::PackedProduct(const ProductMachine& machine, const cpu::ConvShape& shape,
                             absl::Span<const int8_t> weights, bool merges_taps)
    : machine_(machine), shape_(shape), merges_taps_(merges_taps) {
  if (shape.groups > 1) {
    weights_.assign(weights.begin(), weights.end());
    return;
  }
  const cpu::GatherProblem problem = ProblemOf(shape);
  constexpr int64_t kAlignment = 64;
  const int64_t bytes = cpu::AllPanelsBytes(*machine.kernels, problem);
  panels_.reset(static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)));
  cpu::PackAllPanels(*machine.kernels, problem, weights.data(), panels_.get());
}

cpu::GatherProblem PackedProduct::ProblemOf(const cpu::ConvShape& shape) const {
  return merges_taps_ ? cpu::MergeTapsOfRows(shape) : cpu::GatherProblemOf(shape, false);
}

void PackedProduct::RunDense(int64_t batch, cpu::GatherOperands operands) const {
  cpu::ConvShape shape = shape_;
  shape.batch = batch;
  machine_.workspace->Reset();
  cpu::Int8Context context{machine_.kernels, machine_.pool, nullptr};
  const cpu::GatherProblem problem = ProblemOf(shape);
  context.workspace = machine_.workspace->Take<std::byte>(cpu::GatherWorkspaceBytes(
      *machine_.kernels, problem, machine_.pool->threads(), /*prepacked=*/true));
  operands.packed = panels_.get();
  operands.next = next_;
  cpu::RunGather(context, problem, operands);
}

void PackedProduct::Run(int64_t batch, const int8_t* x, int32_t* acc) const {
  if (panels_ != nullptr) return RunDense(batch, {.source = x, .out = acc});
  cpu::ConvShape shape = shape_;
  shape.batch = batch;
  machine_.workspace->Reset();
  cpu::Int8Context context{machine_.kernels, machine_.pool, nullptr};
  context.workspace = machine_.workspace->Take<std::byte>(cpu::Int8WorkspaceBytes(
      *machine_.kernels, shape, cpu::ConvPass::kForward, machine_.pool->threads()));
  cpu::Int8ConvForward(context, shape, x, weights_.data(), acc, /*max_abs=*/nullptr);
}

void PackedProduct::Run(int64_t batch, const int8_t* x, cpu::SumsSink& sink) const {
  if (panels_ != nullptr) return RunDense(batch, {.source = x, .sink = &sink});
  cpu::ConvShape shape = shape_;
  shape.batch = batch;
  machine_.workspace->Reset();
  cpu::Int8Context context{machine_.kernels, machine_.pool, nullptr};
  context.workspace = machine_.workspace->Take<std::byte>(
      cpu::DepthwiseToSinkBytes(shape, machine_.pool->threads()));
  cpu::RunDepthwiseToSink(context, shape, x, weights_.data(), sink);
}

void PackedProduct::Run(int64_t batch, const int8_t* x, const cpu::GatherCoding& coding) const {
  RunDense(batch, {.source = x, .coding = &coding});
}

}  // namespace runnel::inference
