#pragma once

// Memory that the buffers of a backend take of a device, and its limit.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backends/opencl/device/device.h"

namespace runnel::opencl {

// The budget of all sessions of a backend. Any thread.
class DeviceBudget : public std::enable_shared_from_this<DeviceBudget> {
 public:
  // wanted_bytes: --device-memory-mb; 0: the device's memory.
  DeviceBudget(const DeviceInfo& device, int64_t wanted_bytes);

  // Given back when it goes.
  class Share {
   public:
    Share() = default;
    Share(std::shared_ptr<DeviceBudget> budget, int64_t bytes)
        : budget_(std::move(budget)), bytes_(bytes) {}
    Share(Share&& other) noexcept : budget_(std::move(other.budget_)), bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (budget_ != nullptr) budget_->GiveBack(bytes_);
    }
    int64_t bytes() const { return bytes_; }

   private:
    std::shared_ptr<DeviceBudget> budget_;
    int64_t bytes_ = 0;
  };

  // ResourceExhausted, marked (lost_backend.h): the device has no buffer of this size, or all
  // together are over the limit; names need, limit, and the flag.
  absl::StatusOr<Share> Take(int64_t bytes);
  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t taken_bytes() const;

 private:
  void GiveBack(int64_t bytes);

  const std::string device_;
  const int64_t device_bytes_;
  const int64_t max_allocation_;
  const int64_t limit_bytes_;
  mutable std::mutex mutex_;
  int64_t taken_bytes_ = 0;
};

// The one line of a buffer for which there is no room on the device, and `why`.
absl::Status NoRoom(const std::string& device, int64_t bytes, const std::string& why);

}  // namespace runnel::opencl
