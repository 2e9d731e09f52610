#pragma once

// What kernels of backends that compute on the host share: an instruction with its memory, and the
// geometry of its operands.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/program.h"

namespace runnel::host {

// One instruction with its memory, all operands row-major as their shapes say.
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
  const GridRule& grid() const { return instruction_.grid; }
  const RescaleRule& rescale() const { return instruction_.rescale; }
  const BatchSplit& split() const { return instruction_.split; }
  const OptimizerStep* optimizer() const { return instruction_.optimizer; }
  // Weight-gradients: true if they are added to what is there.
  bool adds() const { return context.accumulate && !instruction_.overwrites; }
  DType in_dtype(size_t i) const { return program_.buffers[instruction_.inputs[i]].dtype; }
  DType out_dtype(size_t i) const { return program_.buffers[instruction_.outputs[i]].dtype; }
  // Of scaled operands.
  const ScaleTail& in_tail(size_t i) const {
    return TailOf(in<std::byte>(i), in_dtype(i), in_shape(i));
  }
  ScaleTail& out_tail(size_t i) const {
    return TailOf(out<std::byte>(i), out_dtype(i), out_shape(i));
  }
  bool out_is_scaled(size_t i) const { return program_.buffers[instruction_.outputs[i]].scaled; }
  int64_t in_bytes(size_t i) const { return program_.buffers[instruction_.inputs[i]].bytes(); }
  int64_t out_bytes(size_t i) const { return program_.buffers[instruction_.outputs[i]].bytes(); }
  template <typename T = float>
  const T* in(size_t i) const {
    return reinterpret_cast<const T*>(Address(instruction_.inputs[i]));
  }
  template <typename T = float>
  T* out(size_t i) const {
    return reinterpret_cast<T*>(Address(instruction_.outputs[i]));
  }
  // An in-place operand that stands among the inputs (a slot of the optimizer).
  float* in_out(size_t i) const {
    return reinterpret_cast<float*>(Address(instruction_.inputs[i]));
  }

  const Instruction& instruction() const { return instruction_; }
  const Buffer& buffer(BufferIndex index) const { return program_.buffers[index]; }
  std::byte* Address(BufferIndex index) const {
    return bindings_[buffer(index).storage] + buffer(index).offset_bytes;
  }

  const StepContext& context;

 private:
  const Program& program_;
  const Instruction& instruction_;
  const Bindings& bindings_;
};

using Kernel = absl::Status (*)(const Call& call);

// Batch norm of these samples goes by the running statistics, which stay.
inline bool NormsByRunning(const Instruction& instruction, const Shape& x) {
  return instruction.gate != kNoGate && x[0] < 2;
}

// A (N, C, spatial...) shape as four numbers; 1d lies along w, (N, F) has one position.
struct Image {
  int64_t n = 1, c = 1, h = 1, w = 1;

  int64_t positions() const { return h * w; }
  int64_t rows() const { return n * h * w; }
};
inline Image ImageOf(const Shape& shape) {
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

// Kernel, stride, padding in front and dilation of a 1d or 2d operator, turned the same way. Padding
// behind is what the output's shape leaves.
struct Window {
  int64_t kh = 1, kw = 1, sh = 1, sw = 1, ph = 0, pw = 0, dh = 1, dw = 1;
};
inline Window WindowOf(const OpSpec& op, const Shape& shape) {
  const auto &k = op.kernel, &s = op.stride, &p = op.padding, &d = op.dilation;
  if (shape.rank() == 3) return {1, k[0], 1, s[0], 0, p[0], 1, d[0]};
  return {k[0], k[1], s[0], s[1], p[0], p[1], d[0], d[1]};
}

// FailedPrecondition if the storage of one of these operands has no memory.
absl::Status CheckBound(const Program& program, const Instruction& instruction,
                        const std::vector<BufferIndex>& operands, const Bindings& bindings);

}  // namespace runnel::host
