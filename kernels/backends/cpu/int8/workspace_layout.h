#pragma once

// Cuts a workspace into arrays. A layout function makes the same calls twice: once on a null base
// to learn the size, once on the real one.

#include <cstddef>
#include <cstdint>

namespace runnel::cpu {

class WorkspaceLayout {
 public:
  explicit WorkspaceLayout(std::byte* base) : base_(base) {}

  // 64-byte aligned room for `count` values that need no construction. Null if the base is.
  template <typename T>
  T* Place(int64_t count) {
    const int64_t offset = used_bytes_;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    used_bytes_ += (bytes + 63) / 64 * 64;
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + offset);
  }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* base_;
  int64_t used_bytes_ = 0;
};

}  // namespace runnel::cpu
