#pragma once

// LibTorch's convolution has no form that writes into given memory. This makes the tensor that it
// allocates for its result lie there anyway, which saves a pass over every activation.

#include <cstddef>

namespace runnel::torch_kernels {

// Puts a forwarding allocator before LibTorch's CPU allocator. Any thread, any number of times.
void InstallPlacement();

// While it lives, the first allocation of exactly `bytes` on this thread gets `memory`. Everything
// that LibTorch allocated meanwhile must be gone before the destructor runs, or not live in
// `memory`. One at a time a thread. Whether it was taken shows in the result's data pointer.
class Placement {
 public:
  Placement(void* memory, size_t bytes);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;
};

}  // namespace runnel::torch_kernels
