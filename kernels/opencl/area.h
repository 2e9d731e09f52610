#pragma once

// Memory of a stage on the device, and where an address that Bindings hold leads to.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/opencl/handles.h"
#include "kernels/opencl/session.h"

namespace runnel::opencl {

// The areas of one session. Held by them, so that they may outlive the backend. Any thread.
class Areas : public std::enable_shared_from_this<Areas> {
 public:
  explicit Areas(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  // Zeroed. ResourceExhausted: the device has no more; Unavailable: it is lost.
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes);
  // The buffer behind Memory::address(), or null for an address that is no area's.
  cl_mem Find(const std::byte* address) const;

 private:
  friend class Area;
  void Add(const std::byte* address, cl_mem buffer, int64_t bytes);
  void Remove(const std::byte* address, int64_t bytes);

  const std::shared_ptr<Session> session_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, cl_mem> buffers_;
  int64_t bytes_ = 0;  // of all areas
};

// A buffer that the device alone uses, not zeroed. As Areas::Allocate.
absl::StatusOr<Handle<cl_mem>> CreateBuffer(Session& session, int64_t bytes);

}  // namespace runnel::opencl
