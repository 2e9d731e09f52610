#include "kernels/backends/opencl/device/device_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/backends/lost_backend.h"

namespace runnel::opencl {

absl::Status NoRoom(const std::string& device, int64_t bytes, const std::string& why) {
  return MarkLostBackend(
      absl::ResourceExhaustedError(absl::StrCat("backend opencl: no room for ", bytes,
                                                " bytes on device ", device, ": ", why)),
      "opencl");
}

DeviceBudget::DeviceBudget(const DeviceInfo& device, int64_t wanted_bytes)
    : device_(device.name),
      device_bytes_(device.memory_bytes),
      max_allocation_(device.max_allocation),
      limit_bytes_(wanted_bytes > 0 ? std::min(wanted_bytes, device.memory_bytes)
                                    : device.memory_bytes) {}

absl::StatusOr<DeviceBudget::Share> DeviceBudget::Take(int64_t bytes) {
  if (bytes > max_allocation_) {
    return NoRoom(
        device_, bytes,
        absl::StrCat("a buffer has at most ", max_allocation_, " (CL_DEVICE_MAX_MEM_ALLOC_SIZE)"));
  }
  const std::lock_guard lock(mutex_);
  if (bytes > limit_bytes_ - taken_bytes_) {
    return NoRoom(device_, bytes,
                  absl::StrCat(taken_bytes_, " of ", limit_bytes_, " are taken (",
                               limit_bytes_ < device_bytes_ ? "--device-memory-mb"
                                                            : "CL_DEVICE_GLOBAL_MEM_SIZE",
                               ")"));
  }
  taken_bytes_ += bytes;
  return Share(shared_from_this(), bytes);
}

void DeviceBudget::GiveBack(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_bytes_ -= bytes;
}

int64_t DeviceBudget::taken_bytes() const {
  const std::lock_guard lock(mutex_);
  return taken_bytes_;
}

}  // namespace runnel::opencl
