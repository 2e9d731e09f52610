#pragma once

// An operand outside of the nearest memory, FP32 or halves, and copies of its elements between it and
// floats in L1.

#include <cstring>

#include "absl/types/span.h"
#include "kernels/backends/host/call.h"
#include "kernels/ir/arithmetic/half_products.h"
#include "kernels/ir/range_tally.h"

namespace runnel::small {

class FarValues {
 public:
  static FarValues Input(const host::Call& call, size_t i) {
    return {call, call.instruction().inputs[i]};
  }
  static FarValues Output(const host::Call& call, size_t i) {
    return {call, call.instruction().outputs[i]};
  }

  void Read(int64_t at, int64_t count, float* to) const {
    const std::byte* from = data_ + at * bytes_;
    const auto size = static_cast<size_t>(count);
    if (type_ == DType::kFloat32) {
      std::memcpy(to, from, size * sizeof(float));
    } else {
      TypeOf(type_).to_float({from, size * static_cast<size_t>(bytes_)}, 0, {to, size});
    }
  }
  // Rounds to a half, and counts what that does not hold.
  void Write(int64_t at, absl::Span<const float> values) const {
    std::byte* to = data_ + at * bytes_;
    if (type_ == DType::kFloat32) {
      std::memcpy(to, values.data(), values.size() * sizeof(float));
      return;
    }
    const RangeCounts counts =
        NarrowHalf(type_, values, {to, values.size() * static_cast<size_t>(bytes_)});
    if (call_.context.range != nullptr) call_.context.range->Add(call_.instruction().code, counts);
  }

 private:
  FarValues(const host::Call& call, BufferIndex index)
      : call_(call),
        data_(call.Address(index)),
        type_(call.buffer(index).dtype),
        bytes_(static_cast<int64_t>(SizeOf(type_))) {}

  const host::Call& call_;
  std::byte* data_;
  DType type_;
  int64_t bytes_;  // of an element
};

}  // namespace runnel::small
