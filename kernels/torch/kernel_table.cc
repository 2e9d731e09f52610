#include <ATen/Parallel.h>

#include <cstdlib>

#include "kernels/torch/kernel.h"

namespace runnel::torch_kernels {
namespace {

constexpr KernelRow kKernels[] = {
    {OpCode::kConvForward, LayoutRule::kChannelsLast, ConvForward},
    {OpCode::kLinearForward, LayoutRule::kRowMajor, LinearForward},
    {OpCode::kBatchNormForward, LayoutRule::kChannelsLast, BatchNormForward},
    {OpCode::kBatchNormEval, LayoutRule::kChannelsLast, BatchNormEval},
    {OpCode::kBatchNormAgain, LayoutRule::kChannelsLast, BatchNormAgain},
    {OpCode::kReluForward, LayoutRule::kSame, ReluForward},
    {OpCode::kRelu6Forward, LayoutRule::kSame, Relu6Forward},
    {OpCode::kDropoutForward, LayoutRule::kSame, Dropout},
    {OpCode::kMaxPoolForward, LayoutRule::kChannelsLast, MaxPoolForward},
    {OpCode::kAvgPoolForward, LayoutRule::kChannelsLast, AvgPoolForward},
    {OpCode::kGlobalAvgPoolForward, LayoutRule::kChannelsLast, GlobalAvgPoolForward},
    {OpCode::kAddForward, LayoutRule::kSame, Add},
    {OpCode::kCopy, LayoutRule::kSame, Copy},
    {OpCode::kSoftmaxCrossEntropy, LayoutRule::kRowMajor, SoftmaxCrossEntropy},
    {OpCode::kSoftmaxCrossEntropyEval, LayoutRule::kRowMajor, SoftmaxCrossEntropyEval},
    {OpCode::kConvInputGradient, LayoutRule::kChannelsLast, ConvInputGradient},
    {OpCode::kLinearInputGradient, LayoutRule::kRowMajor, LinearInputGradient},
    {OpCode::kBatchNormInputGradient, LayoutRule::kChannelsLast, BatchNormInputGradient},
    {OpCode::kReluInputGradient, LayoutRule::kSame, ReluInputGradient},
    {OpCode::kRelu6InputGradient, LayoutRule::kSame, Relu6InputGradient},
    {OpCode::kDropoutInputGradient, LayoutRule::kSame, Dropout},
    {OpCode::kMaxPoolInputGradient, LayoutRule::kChannelsLast, MaxPoolInputGradient},
    {OpCode::kAvgPoolInputGradient, LayoutRule::kChannelsLast, AvgPoolInputGradient},
    {OpCode::kGlobalAvgPoolInputGradient, LayoutRule::kChannelsLast, GlobalAvgPoolInputGradient},
    {OpCode::kAccumulate, LayoutRule::kSame, Add},
    {OpCode::kConvWeightGradient, LayoutRule::kChannelsLast, ConvWeightGradient},
    {OpCode::kLinearWeightGradient, LayoutRule::kRowMajor, LinearWeightGradient},
    {OpCode::kBatchNormWeightGradient, LayoutRule::kRowMajor, BatchNormWeightGradient},
    {OpCode::kSgdUpdate, LayoutRule::kRowMajor, SgdUpdate},
};

}  // namespace

const KernelRow* FindKernel(OpCode code) {
  for (const KernelRow& row : kKernels) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

void Arena::Free::operator()(std::byte* p) const { std::free(p); }

std::byte* Arena::Get(int64_t bytes) {
  if (bytes > bytes_) {
    bytes_ = (bytes + 63) / 64 * 64;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(bytes_))));
  }
  return memory_.get();
}

Image ImageOf(const Shape& shape) {
  Image image;
  image.n = shape[0];
  image.c = shape[1];
  if (shape.rank() == 3) image.w = shape[2];
  if (shape.rank() == 4) {
    image.h = shape[2];
    image.w = shape[3];
  }
  return image;
}

Window WindowOf(const OpSpec& op, const Shape& shape) {
  if (shape.rank() == 3) return {1, op.kernel[0], 1, op.stride[0], 0, op.padding[0]};
  return {op.kernel[0], op.kernel[1], op.stride[0], op.stride[1], op.padding[0], op.padding[1]};
}

void ParallelFor(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  if (at::get_num_threads() == 1) {
    body(0, count);
  } else {
    at::parallel_for(0, count, 1, body);
  }
}

}  // namespace runnel::torch_kernels
