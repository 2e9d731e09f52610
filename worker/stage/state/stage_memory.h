#pragma once

// What a stage takes of its backend's memory, counted.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"

namespace runnel {

// The compute lane owns it; bytes() from any thread.
class StageMemory {
 public:
  // `backend` outlives it.
  explicit StageMemory(Backend* backend) : backend_(backend) {}

  // Errors as Backend::Allocate.
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) {
    bytes_ += bytes;
    return backend_->Allocate(bytes);
  }
  // Counts what others took, or with a minus gave back.
  void Take(int64_t bytes) { bytes_ += bytes; }
  // What executables keep from run to run, which their runs change.
  void SetKept(int64_t bytes) { bytes_ += bytes - std::exchange(kept_bytes_, bytes); }

  Backend& backend() const { return *backend_; }
  int64_t bytes() const { return bytes_; }

 private:
  Backend* backend_;
  std::atomic<int64_t> bytes_ = 0;
  int64_t kept_bytes_ = 0;  // of bytes_
};

}  // namespace runnel
