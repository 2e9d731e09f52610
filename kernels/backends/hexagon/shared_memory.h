#pragma once

// Memory that the host and the DSP's processes both map, and the host's allocations in it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/hexagon/range_set.h"

namespace runnel::hexagon {

// The areas of one mapping. Any thread. Held by its areas, so that they may outlive the session.
class SharedMemory : public std::enable_shared_from_this<SharedMemory> {
 public:
  // A file without a name of so many bytes, which take memory as they are written. `reserved_bytes`
  // at its start are never given out. Unavailable: the system refuses.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(uint32_t bytes,
                                                              uint32_t reserved_bytes);
  // Adopts memory that a device's library made; `release` gives it back. The host's changes are
  // remembered (TakeChanges).
  static std::shared_ptr<SharedMemory> Adopt(int file, std::byte* base, uint32_t bytes,
                                             uint32_t reserved_bytes,
                                             std::function<void()> release);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int file() const { return file_; }
  std::byte* base() const { return base_; }
  uint32_t bytes() const { return bytes_; }
  // Bytes allocated or reserved.
  int64_t taken_bytes() const;
  bool Contains(const std::byte* at) const { return at >= base_ && at < base_ + bytes_; }
  uint32_t OffsetOf(const std::byte* at) const { return static_cast<uint32_t>(at - base_); }

  // Zeroed, 128-byte aligned, with kSlackBytes of nobody's behind it. ResourceExhausted.
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes);
  // A number that the area which begins at `at` has had since its bytes may last have changed; 0
  // for an address that no area begins at.
  uint64_t VersionOf(const std::byte* at) const;
  // The area's bytes change.
  void RenewVersion(const std::byte* at);
  // The host has written these bytes.
  void RecordChange(uint32_t offset, uint32_t bytes);
  // The host's writes since the last call; none for memory that was not adopted.
  RangeSet TakeChanges();

 private:
  friend class SharedArea;
  SharedMemory(int file, std::byte* base, uint32_t bytes, uint32_t reserved_bytes,
               std::function<void()> release)
      : file_(file),
        base_(base),
        bytes_(bytes),
        first_(reserved_bytes),
        release_(std::move(release)) {}
  void Free(uint32_t offset);
  int64_t TakenLocked() const;

  struct Area {
    uint32_t bytes = 0;
    uint64_t version = 0;
  };

  const int file_;
  std::byte* const base_;
  const uint32_t bytes_;
  const uint32_t first_;
  const std::function<void()> release_;
  bool remembers_changes_ = false;
  mutable std::mutex mutex_;
  std::map<uint32_t, Area> areas_;  // by offset
  uint64_t last_version_ = 0;
  RangeSet changes_;
};

}  // namespace runnel::hexagon
