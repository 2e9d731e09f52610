#pragma once

// Bytes whose neighbours on one side cannot be touched: a read or write past the end (or before the
// beginning) kills the test at once, with or without a sanitizer.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

#include "absl/types/span.h"

namespace runnel {

enum class Guard { kAfter, kBefore };

class GuardedBuffer {
 public:
  GuardedBuffer(size_t size, Guard guard) : size_(size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t body = (size + page - 1) / page * page + page;
    mapped_ = body + page;
    base_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::byte* wall = guard == Guard::kAfter ? base_ + body : base_;
    if (base_ == MAP_FAILED || mprotect(wall, page, PROT_NONE) != 0) std::abort();
    data_ = guard == Guard::kAfter ? base_ + body - size : base_ + page;
  }
  ~GuardedBuffer() { munmap(base_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  absl::Span<std::byte> bytes() { return {data_, size_}; }
  float* floats() { return reinterpret_cast<float*>(data_); }

 private:
  size_t size_;
  size_t mapped_ = 0;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace runnel
