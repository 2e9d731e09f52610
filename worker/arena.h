#pragma once

// One 64-byte aligned piece of memory, zeroed when made: a weight version, the momentum, a
// micro-batch's stash.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "proto/base/huge_pages.h"

namespace runnel {

class Arena {
 public:
  Arena() = default;
  explicit Arena(int64_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(
                  ::operator new(static_cast<size_t>(bytes > 0 ? bytes : 1), Alignment(bytes))),
              Free{Alignment(bytes)}) {
    AdviseHugePages(data_.get(), bytes_);
    std::memset(data_.get(), 0, static_cast<size_t>(bytes_));
  }

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  static std::align_val_t Alignment(int64_t bytes) {
    return std::align_val_t{AreaAlignment(bytes)};
  }
  struct Free {
    Free() : alignment(std::align_val_t{64}) {}
    explicit Free(std::align_val_t a) : alignment(a) {}
    void operator()(std::byte* data) const { ::operator delete(data, alignment); }
    std::align_val_t alignment;
  };
  int64_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace runnel
