#include "kernels/models/fp32_node.h"

#include <algorithm>
#include <chrono>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"

namespace runnel::inference {
namespace {

using Clock = std::chrono::steady_clock;

// No zeros and nothing denormal: some processors are slower or faster with these.
void FillSmall(std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01f * (static_cast<float>(i % 101) - 50.5f);
}

}  // namespace

Fp32Node::Fp32Node(const Node& node, int64_t batch, cpu::ThreadPool* pool) {
  const cpu::ConvShape& s = node.shape;
  buffers_[0].shape = {batch, s.in_c, s.in_h, s.in_w};
  buffers_[1].shape = {s.out_c, s.in_c / s.groups, s.kernel_h, s.kernel_w};
  buffers_[2].shape = {s.out_c};
  buffers_[3].shape = {batch, s.out_c, s.out_h, s.out_w};
  std::vector<float>* const values[] = {&x_, &weights_, &bias_, &y_};
  for (size_t i = 0; i < 4; ++i) {
    values[i]->resize(static_cast<size_t>(buffers_[i].shape.elements()));
    FillSmall(*values[i]);
    const cpu::Operand operand = {reinterpret_cast<std::byte*>(values[i]->data()), &buffers_[i]};
    (i < 3 ? inputs_[i] : outputs_[0]) = operand;
  }
  instruction_.code = OpCode::kConvForward;
  OpSpec& op = instruction_.attributes;
  op.kind = OpKind::kConv;
  op.out_channels = s.out_c;
  op.kernel = {s.kernel_h, s.kernel_w};
  op.stride = {s.stride_h, s.stride_w};
  op.padding = {s.pad_h, s.pad_w};
  op.groups = s.groups;
  op.bias = true;
  call_.instruction = &instruction_;
  call_.inputs = inputs_;
  call_.outputs = outputs_;
  call_.context = &context_;
  call_.channels_last = true;
  call_.machine = {
      .fp32 = fp32::SupportedKernels().front(), .pool = pool, .workspace = &workspace_};
}

void Fp32Node::Run() {
  workspace_.Reset();
  // It has no error of its own.
  fp32::ConvForward({&call_, 1}).IgnoreError();
}

std::vector<double> TimeFp32Nodes(const Int8Graph& graph, int64_t batch, int threads, int passes) {
  cpu::ThreadPool pool(threads);
  std::vector<double> medians;
  for (const Int8Node& one : graph.nodes) {
    medians.push_back(0);
    if (one.node.kind != NodeKind::kConv) continue;
    Fp32Node node(one.node, batch, &pool);
    std::vector<double> seconds;
    for (int pass = 0; pass <= passes; ++pass) {
      const Clock::time_point start = Clock::now();
      node.Run();
      const std::chrono::duration<double> took = Clock::now() - start;
      if (pass > 0) seconds.push_back(took.count());
    }
    const auto middle = seconds.begin() + static_cast<int64_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    medians.back() = *middle;
  }
  return medians;
}

}  // namespace runnel::inference
