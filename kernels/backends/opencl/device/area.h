#pragma once

// Memory of a stage on the device, and where an address that Bindings hold leads to.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/opencl/device/handles.h"
#include "kernels/backends/opencl/device/session.h"

namespace runnel::opencl {

// A buffer, and its share of the device's memory budget.
struct DeviceBuffer {
  DeviceBudget::Share share;
  Handle<cl_mem> handle;

  cl_mem get() const { return handle.get(); }
  int64_t bytes() const { return share.bytes(); }
};
// A buffer that only the device uses, not zeroed. Errors as Areas::Allocate.
absl::StatusOr<DeviceBuffer> CreateBuffer(Session& session, int64_t bytes);

// The areas of one session. Held by them, so that they may outlive the backend. Any thread.
class Areas : public std::enable_shared_from_this<Areas> {
 public:
  explicit Areas(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  // Zeroed. ResourceExhausted: the device has no more, or may give no more (DeviceBudget);
  // Unavailable: it is lost.
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes);
  // The buffer behind Memory::address(), or null for an address that is no area's.
  cl_mem Find(const std::byte* address) const;

 private:
  friend class Area;
  void Add(const std::byte* address, cl_mem buffer);
  void Remove(const std::byte* address);

  const std::shared_ptr<Session> session_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, cl_mem> buffers_;
};

}  // namespace runnel::opencl
