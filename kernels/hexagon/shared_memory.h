#pragma once

// Memory that the host and the DSP's processes both map, and what the host has given out of it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace runnel::hexagon {

// The areas of one mapping. Any thread. Held by its areas, so that they may outlive the session.
class SharedMemory : public std::enable_shared_from_this<SharedMemory> {
 public:
  // A file without a name of so many bytes, which take memory as they are written. `reserved_bytes`
  // at its start are never given out. Unavailable: the system refuses.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(uint32_t bytes,
                                                              uint32_t reserved_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int file() const { return file_; }
  std::byte* base() const { return base_; }
  uint32_t bytes() const { return bytes_; }
  bool Contains(const std::byte* at) const { return at >= base_ && at < base_ + bytes_; }
  uint32_t OffsetOf(const std::byte* at) const { return static_cast<uint32_t>(at - base_); }

  // Zeroed, 128-byte aligned, with kSlackBytes of nobody's behind it. ResourceExhausted.
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes);
  // A number that the area which begins at `at` has had since its bytes may last have changed; 0
  // for an address that no area begins at.
  uint64_t VersionOf(const std::byte* at) const;
  // The area's bytes change.
  void RenewVersion(const std::byte* at);

 private:
  friend class SharedArea;
  SharedMemory(int file, std::byte* base, uint32_t bytes)
      : file_(file), base_(base), bytes_(bytes) {}
  void Free(uint32_t offset);

  struct Area {
    uint32_t bytes = 0;
    uint64_t version = 0;
  };

  const int file_;
  std::byte* const base_;
  const uint32_t bytes_;
  uint32_t first_ = 0;
  mutable std::mutex mutex_;
  std::map<uint32_t, Area> areas_;  // by offset
  uint64_t last_version_ = 0;
};

}  // namespace runnel::hexagon
