#include "kernels/backends/host/widened_call.h"

#include <deque>

#include "kernels/ir/arithmetic/half_products.h"
#include "proto/base/status_macros.h"

namespace runnel::host {
namespace {

absl::Span<const std::byte> BytesOf(const std::byte* data, const Buffer& buffer) {
  return {data, static_cast<size_t>(buffer.bytes())};
}

// The operands of one instruction, each in a storage of its own.
class WideOperands {
 public:
  explicit WideOperands(const Call& call) : call_(call), instruction_(call.instruction()) {
    for (size_t i = 0; i < instruction_.inputs.size(); ++i)
      instruction_.inputs[i] = Add(instruction_.inputs[i], /*reads=*/true);
    for (size_t i = 0; i < instruction_.outputs.size(); ++i)
      instruction_.outputs[i] = Add(instruction_.outputs[i], /*reads=*/false);
  }

  absl::Status Run(Kernel kernel) {
    RUNNEL_RETURN_IF_ERROR(kernel(Call(program_, instruction_, call_.context, bindings_)));
    for (size_t i = 0; i < instruction_.outputs.size(); ++i) {
      const BufferIndex operand = call_.instruction().outputs[i];
      if (!IsHalf(call_.buffer(operand).dtype)) continue;
      StoreHalves(call_, operand, wide_[static_cast<size_t>(instruction_.outputs[i])]);
    }
    return absl::OkStatus();
  }

 private:
  BufferIndex Add(BufferIndex operand, bool reads) {
    const Buffer& buffer = call_.buffer(operand);
    std::byte* data = call_.Address(operand);
    const auto index = static_cast<BufferIndex>(program_.buffers.size());
    const auto storage = static_cast<Storage>(index);
    std::vector<float>& wide = wide_.emplace_back();
    program_.buffers.push_back(buffer);
    program_.buffers.back().storage = storage;
    program_.buffers.back().offset_bytes = 0;
    bindings_[storage] = data;
    if (!IsHalf(buffer.dtype)) return index;
    program_.buffers.back().dtype = DType::kFloat32;
    wide.resize(static_cast<size_t>(buffer.shape.elements()));
    if (reads) TypeOf(buffer.dtype).to_float(BytesOf(data, buffer), 0, absl::MakeSpan(wide));
    bindings_[storage] = reinterpret_cast<std::byte*>(wide.data());
    return index;
  }

  const Call& call_;
  Program program_;
  Instruction instruction_;
  Bindings bindings_;
  std::deque<std::vector<float>> wide_;  // by operand
};

}  // namespace

absl::Status RunWidened(const Call& call, Kernel kernel) { return WideOperands(call).Run(kernel); }

void StoreHalves(const Call& call, BufferIndex operand, absl::Span<const float> values) {
  const Buffer& buffer = call.buffer(operand);
  const RangeCounts counts = NarrowHalf(
      buffer.dtype, values, {call.Address(operand), static_cast<size_t>(buffer.bytes())});
  if (call.context.range != nullptr) call.context.range->Add(call.instruction().code, counts);
}

std::vector<float> WidenedInput(const Call& call, size_t i) {
  const Buffer& buffer = call.buffer(call.instruction().inputs[i]);
  std::vector<float> values(static_cast<size_t>(buffer.shape.elements()));
  TypeOf(buffer.dtype).to_float(BytesOf(call.in<std::byte>(i), buffer), 0, absl::MakeSpan(values));
  return values;
}

}  // namespace runnel::host
