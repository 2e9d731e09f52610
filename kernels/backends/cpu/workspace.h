#pragma once

// Memory for the temporaries of one kernel.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "proto/base/host/huge_pages.h"

namespace runnel::cpu {

// Pieces of 64-byte aligned memory that live until Reset. After the first few steps all of them lie
// in one block, so nothing is allocated any more. One thread.
class Workspace {
 public:
  template <typename T>
  T* Take(int64_t count) {
    return reinterpret_cast<T*>(TakeBytes(count * static_cast<int64_t>(sizeof(T))));
  }

  // Gives everything back.
  void Reset() {
    if (blocks_.size() > 1) {
      blocks_.clear();
      blocks_.push_back(Block(wanted_));
    }
    used_ = 0;
    wanted_ = 0;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  struct Block {
    explicit Block(int64_t size) : bytes(size) {
      const size_t alignment = AreaAlignment(size);
      const size_t rounded = (static_cast<size_t>(size) + alignment - 1) / alignment * alignment;
      memory.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
      AdviseHugePages(memory.get(), size);
    }
    std::unique_ptr<std::byte, Free> memory;
    int64_t bytes;
  };

  std::byte* TakeBytes(int64_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    wanted_ += bytes;
    if (blocks_.empty() || used_ + bytes > blocks_.back().bytes) {
      blocks_.push_back(Block(bytes));
      used_ = 0;
    }
    std::byte* result = blocks_.back().memory.get() + used_;
    used_ += bytes;
    return result;
  }

  std::vector<Block> blocks_;
  int64_t used_ = 0;    // used bytes of the last block
  int64_t wanted_ = 0;  // since Reset
};

}  // namespace runnel::cpu
