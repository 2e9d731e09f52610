#pragma once

// Resources of an operation's kernel: the shared memory, the tightly coupled memory (VTCM), memory
// of the program's own, and copies into VTCM. One thread; parts of an operation only read it.

#include <stddef.h>
#include <stdint.h>

#include "kernels/backends/hexagon/dsp/regions.h"
#include "kernels/backends/hexagon/op_list.h"

namespace runnel::hexagon {

// A tail, laid out as in proto/base/model/number_format.h.
struct Tail {
  int32_t exponent;
  int32_t reserved;
  int64_t max_abs;
  int64_t padding[6];
};
static_assert(sizeof(Tail) == kTailBytes, "the host's ScaleTail");

// Memory that is given out front to back and taken back all at once.
class Arena {
 public:
  void Set(uint8_t* base, uint32_t bytes) {
    base_ = base;
    bytes_ = bytes;
    used_ = 0;
  }
  // Aligned to a vector, with the slack behind it; null: there is no more.
  uint8_t* Take(uint64_t bytes) {
    const uint64_t size = (bytes + kSlackBytes + 127) / 128 * 128;
    if (size > bytes_ - used_) return nullptr;
    uint8_t* at = base_ + used_;
    used_ += static_cast<uint32_t>(size);
    return at;
  }
  template <typename T>
  T* Take(uint64_t count) {
    return reinterpret_cast<T*>(Take(count * sizeof(T)));
  }
  void Reset() { used_ = 0; }
  // Gives back the memory taken since the matching `used`.
  uint32_t used() const { return used_; }
  void ReleaseTo(uint32_t used) { used_ = used; }
  uint8_t* base() const { return base_; }
  uint32_t bytes() const { return bytes_; }

 private:
  uint8_t* base_ = nullptr;
  uint32_t bytes_ = 0;
  uint32_t used_ = 0;
};

struct Machine {
  uint8_t* shared = nullptr;
  uint32_t shared_bytes = 0;
  uint8_t* vtcm = nullptr;
  uint32_t vtcm_bytes = 0;
  uint32_t threads = 1;  // that an operation may use (threads.h)
  Arena scratch;         // reset before each operation
  Regions packed;        // packed weights
  KeptRegions kept;      // those that keep their place

  template <typename T>
  T* data(const DspTensor& tensor) const {
    return reinterpret_cast<T*>(shared + tensor.data);
  }
  Tail& tail(const DspTensor& tensor) const {
    return *reinterpret_cast<Tail*>(shared + tensor.tail);
  }
  void SetTail(const DspTensor& tensor, int32_t exponent, int64_t max_abs = 0) const {
    tail(tensor) = {exponent, 0, max_abs, {}};
  }
};

extern "C" {
void* memcpy(void* to, const void* from, size_t bytes);
void* memset(void* to, int value, size_t bytes);
}

// A copy into VTCM whose bytes come beside the kernels: begun early, waited for before they are read.
// One at a time; one thread.
void BeginCopy(void* vtcm, const void* from, uint32_t bytes);
void AwaitCopy();

// An operation's kernel.
using Kernel = DspStatus (*)(Machine& machine, const DspOp& op);
// Null for a code that there is none for.
Kernel FindKernel(DspCode code);

DspStatus Copy(Machine& machine, const DspOp& op);
DspStatus Quantize(Machine& machine, const DspOp& op);
DspStatus Rescale(Machine& machine, const DspOp& op);
DspStatus Relu(Machine& machine, const DspOp& op);
DspStatus ReluGradient(Machine& machine, const DspOp& op);
DspStatus Dropout(Machine& machine, const DspOp& op);
DspStatus Add(Machine& machine, const DspOp& op);
DspStatus ConvForward(Machine& machine, const DspOp& op);
DspStatus ConvInputGradient(Machine& machine, const DspOp& op);
DspStatus ConvWeightGradient(Machine& machine, const DspOp& op);
DspStatus LinearForward(Machine& machine, const DspOp& op);
DspStatus LinearInputGradient(Machine& machine, const DspOp& op);
DspStatus LinearWeightGradient(Machine& machine, const DspOp& op);
DspStatus MaxPoolForward(Machine& machine, const DspOp& op);
DspStatus MaxPoolInputGradient(Machine& machine, const DspOp& op);
DspStatus AvgPoolForward(Machine& machine, const DspOp& op);
DspStatus AvgPoolInputGradient(Machine& machine, const DspOp& op);
DspStatus GlobalAvgPoolForward(Machine& machine, const DspOp& op);
DspStatus GlobalAvgPoolInputGradient(Machine& machine, const DspOp& op);
DspStatus AddScaledGradient(Machine& machine, const DspOp& op);
DspStatus Update(Machine& machine, const DspOp& op);
DspStatus LossGradient(Machine& machine, const DspOp& op);
DspStatus EncodeCodes(Machine& machine, const DspOp& op);
DspStatus RequantizeCodes(Machine& machine, const DspOp& op);
DspStatus AddCodes(Machine& machine, const DspOp& op);
DspStatus PadCodes(Machine& machine, const DspOp& op);
DspStatus CodesToChannelsFirst(Machine& machine, const DspOp& op);
DspStatus CodesToChannelsLast(Machine& machine, const DspOp& op);

}  // namespace runnel::hexagon
