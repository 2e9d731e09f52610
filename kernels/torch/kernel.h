#pragma once

// What a kernel of this backend gets, and the table of kernels.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/program.h"

namespace runnel::torch_kernels {

// 64-byte aligned memory that only grows. One thread.
class Arena {
 public:
  // At least `bytes`, until the next call; contents are not kept.
  std::byte* Get(int64_t bytes);

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  int64_t bytes_ = 0;
};

struct Operand {
  std::byte* data = nullptr;
  const Buffer* buffer = nullptr;
};

// One instruction with its memory. Activations of rank >= 3 are channels-last if channels_last.
struct Call {
  const Instruction* instruction = nullptr;
  absl::Span<const Operand> inputs;
  absl::Span<const Operand> outputs;
  const StepContext* context = nullptr;
  bool channels_last = false;
  Arena* arena = nullptr;  // for the kernel's own temporaries

  template <typename T = float>
  const T* in(size_t i) const {
    return reinterpret_cast<const T*>(inputs[i].data);
  }
  template <typename T = float>
  T* out(size_t i) const {
    return reinterpret_cast<T*>(outputs[i].data);
  }
  const Shape& in_shape(size_t i) const { return inputs[i].buffer->shape; }
  const Shape& out_shape(size_t i) const { return outputs[i].buffer->shape; }
};

// How activations of rank >= 3 must lie for a kernel.
enum class LayoutRule : uint8_t {
  kChannelsLast,
  kRowMajor,  // as the shape says
  kSame,      // either, but all operands alike
};

struct KernelRow {
  OpCode code;
  LayoutRule layout;
  absl::Status (*run)(const Call& call);
};

// Null if there is none.
const KernelRow* FindKernel(OpCode code);

// A (N, C, spatial...) shape as four numbers; 1d lies along w, (N, F) has one position.
struct Image {
  int64_t n = 1, c = 1, h = 1, w = 1;

  int64_t positions() const { return h * w; }
  int64_t rows() const { return n * h * w; }
};
Image ImageOf(const Shape& shape);

// Kernel, stride and padding of a 1d or 2d operator, turned the same way.
struct Window {
  int64_t kh = 1, kw = 1, sh = 1, sw = 1, ph = 0, pw = 0;
};
Window WindowOf(const OpSpec& op, const Shape& shape);

// Calls body(begin, end) on parts of [0, count), on LibTorch's threads. The body's result must not
// depend on the division.
void ParallelFor(int64_t count, const std::function<void(int64_t, int64_t)>& body);

// The kernels, by file.
absl::Status ConvForward(const Call& call);
absl::Status ConvInputGradient(const Call& call);
absl::Status ConvWeightGradient(const Call& call);
absl::Status LinearForward(const Call& call);
absl::Status LinearInputGradient(const Call& call);
absl::Status LinearWeightGradient(const Call& call);
absl::Status BatchNormForward(const Call& call);
absl::Status BatchNormEval(const Call& call);
absl::Status BatchNormAgain(const Call& call);
absl::Status BatchNormInputGradient(const Call& call);
absl::Status BatchNormWeightGradient(const Call& call);
absl::Status ReluForward(const Call& call);
absl::Status Relu6Forward(const Call& call);
absl::Status ReluInputGradient(const Call& call);
absl::Status Relu6InputGradient(const Call& call);
absl::Status Add(const Call& call);
absl::Status Copy(const Call& call);
absl::Status SgdUpdate(const Call& call);
absl::Status Dropout(const Call& call);
absl::Status MaxPoolForward(const Call& call);
absl::Status MaxPoolInputGradient(const Call& call);
absl::Status AvgPoolForward(const Call& call);
absl::Status AvgPoolInputGradient(const Call& call);
absl::Status GlobalAvgPoolForward(const Call& call);
absl::Status GlobalAvgPoolInputGradient(const Call& call);
absl::Status SoftmaxCrossEntropy(const Call& call);
absl::Status SoftmaxCrossEntropyEval(const Call& call);

// depthwise.cc, called by the Conv* kernels when each channel is a group of its own.
void DepthwiseForward(const Call& call);
void DepthwiseInputGradient(const Call& call);
// dweight (C, kh * kw), overwritten.
void DepthwiseWeightGradient(const Call& call, float* dweight);

// Sums of the columns of a (rows, columns) matrix, double inside.
void ColumnSums(const float* x, int64_t rows, int64_t columns, float* sums);
// target = source, or target += source.
void StoreGradient(const float* source, int64_t count, bool accumulate, float* target);

}  // namespace runnel::torch_kernels
