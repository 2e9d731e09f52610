#pragma once

// One function an OpCode; operands as kernels/program.h lists them. Private to kernels/ref.

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/program.h"

namespace runnel::ref {

// One instruction with its memory.
class Call {
 public:
  Call(const Program& program, const Instruction& instruction, const StepContext& context,
       const Bindings& bindings)
      : context(context), program_(program), instruction_(instruction), bindings_(bindings) {}

  const OpSpec& attributes() const { return instruction_.attributes; }
  int layer() const { return instruction_.layer; }
  int op() const { return instruction_.op; }
  bool has_input(size_t i) const { return i < instruction_.inputs.size(); }
  bool has_output(size_t i) const { return i < instruction_.outputs.size(); }
  const Shape& in_shape(size_t i) const { return program_.buffers[instruction_.inputs[i]].shape; }
  const Shape& out_shape(size_t i) const { return program_.buffers[instruction_.outputs[i]].shape; }
  const IntegerRule& rule() const { return instruction_.integer; }
  DType in_dtype(size_t i) const { return program_.buffers[instruction_.inputs[i]].dtype; }
  DType out_dtype(size_t i) const { return program_.buffers[instruction_.outputs[i]].dtype; }
  // Of scaled operands.
  const ScaleTail& in_tail(size_t i) const {
    return TailOf(in<std::byte>(i), in_dtype(i), in_shape(i));
  }
  ScaleTail& out_tail(size_t i) const {
    return TailOf(out<std::byte>(i), out_dtype(i), out_shape(i));
  }
  int64_t out_bytes(size_t i) const { return program_.buffers[instruction_.outputs[i]].bytes(); }
  template <typename T = float>
  const T* in(size_t i) const {
    return reinterpret_cast<const T*>(Address(instruction_.inputs[i]));
  }
  template <typename T = float>
  T* out(size_t i) const {
    return reinterpret_cast<T*>(Address(instruction_.outputs[i]));
  }
  // The in-place operand that stands among the inputs (momentum).
  float* in_out(size_t i) const {
    return reinterpret_cast<float*>(Address(instruction_.inputs[i]));
  }

  const StepContext& context;

 private:
  std::byte* Address(BufferIndex index) const {
    const Buffer& buffer = program_.buffers[index];
    return bindings_[buffer.storage] + buffer.offset_bytes;
  }

  const Program& program_;
  const Instruction& instruction_;
  const Bindings& bindings_;
};

// Writes a weight-gradient, or adds to what is there.
inline void StoreGradient(const Call& call, float value, float* place) {
  *place = call.context.accumulate ? *place + value : value;
}

// `value` rounded to `shift` bits fewer, 0 for as it is, as the instruction's rule says; `element`
// is the logical index, which keys the draw of stochastic rounding.
int64_t RoundBy(const Call& call, int64_t value, int shift, int64_t element);

using Kernel = absl::Status (*)(const Call& call);

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
absl::Status Dropout(const Call& call);  // forward and gradient are the same map
absl::Status Sum(const Call& call);      // add and accumulate
absl::Status Copy(const Call& call);
absl::Status MaxPoolForward(const Call& call);
absl::Status MaxPoolInputGradient(const Call& call);
absl::Status AvgPoolForward(const Call& call);
absl::Status AvgPoolInputGradient(const Call& call);
absl::Status GlobalAvgPoolForward(const Call& call);
absl::Status GlobalAvgPoolInputGradient(const Call& call);
absl::Status SoftmaxCrossEntropy(const Call& call);
absl::Status SoftmaxCrossEntropyEval(const Call& call);
absl::Status SgdUpdate(const Call& call);

absl::Status Quantize(const Call& call);
absl::Status Rescale(const Call& call);
absl::Status Int8ProductForward(const Call& call);  // conv and linear
absl::Status Int8ProductInputGradient(const Call& call);
absl::Status Int8ProductWeightGradient(const Call& call);
absl::Status Int8ReluForward(const Call& call);
absl::Status Int8ReluInputGradient(const Call& call);
absl::Status Int8DropoutForward(const Call& call);
absl::Status Int8DropoutInputGradient(const Call& call);
absl::Status Int8Add(const Call& call);
absl::Status Int8MaxPoolForward(const Call& call);
absl::Status Int8MaxPoolInputGradient(const Call& call);
absl::Status Int8AvgPoolForward(const Call& call);
absl::Status Int8AvgPoolInputGradient(const Call& call);
absl::Status Int8GlobalAvgPoolForward(const Call& call);
absl::Status Int8GlobalAvgPoolInputGradient(const Call& call);
absl::Status AddScaledGradient(const Call& call);
absl::Status NitiUpdate(const Call& call);
absl::Status IntegerSoftmaxCrossEntropy(const Call& call);
absl::Status IntegerSoftmaxCrossEntropyEval(const Call& call);

}  // namespace runnel::ref
