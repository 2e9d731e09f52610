#include "kernels/backends/hexagon/dsp/product/wide_sums.h"

namespace runnel::hexagon {

bool GradientSums::Begin(Machine& machine, const DspTensor& result) {
  count_ = result.elements;
  if (result.bytes == sizeof(int32_t)) {
    sums_ = machine.data<int32_t>(result);
    return true;
  }
  wide_ = machine.data<int64_t>(result);
  sums_ = machine.scratch.Take<int32_t>(count_);
  return sums_ != nullptr;
}

bool GradientSums::Expect(uint32_t products) {
  if (wide_ != nullptr && !first_ && products_ + products > kMaxInt32Products) {
    Flush();
    first_ = true;
    products_ = 0;
  }
  products_ += products;
  const bool anew = first_;
  first_ = false;
  return anew;
}

void GradientSums::Flush() {
  for (uint32_t i = 0; i < count_; ++i) wide_[i] = (flushed_ ? wide_[i] : 0) + sums_[i];
  flushed_ = true;
}

int64_t GradientSums::Finish(int64_t narrow) {
  if (wide_ == nullptr) return narrow;
  Flush();
  int64_t largest = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    const int64_t magnitude = wide_[i] < 0 ? -wide_[i] : wide_[i];
    if (magnitude > largest) largest = magnitude;
  }
  return largest;
}

}  // namespace runnel::hexagon
