#pragma once

// Brings requests to the shared object on the DSP: by packets of a queue, or each by a remote call.

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backends/hexagon/device/vendor_library.h"
#include "kernels/backends/hexagon/op_list.h"
#include "kernels/backends/hexagon/shared_memory.h"

namespace runnel::hexagon {

// An open handle of the shared object; closed when it goes.
class RemoteHandle {
 public:
  RemoteHandle(std::shared_ptr<const VendorLibrary> library, uint64_t handle)
      : library_(std::move(library)), handle_(handle) {}
  ~RemoteHandle() { library_->calls.close(handle_); }
  RemoteHandle(const RemoteHandle&) = delete;
  RemoteHandle& operator=(const RemoteHandle&) = delete;

  const VendorLibrary& library() const { return *library_; }
  // Arguments: `in` buffers, then `out` buffers. The library's error, 0: none.
  int Invoke(uint32_t method, uint32_t in, uint32_t out, RemoteArgument* arguments) const {
    return library_->calls.invoke(handle_, method << 24 | in << 16 | out << 8, arguments);
  }

 private:
  const std::shared_ptr<const VendorLibrary> library_;
  const uint64_t handle_;
};

// One request at a time; one thread. If the caches of host and DSP do not see each other's changes,
// `changed` names the host's writes since the last request and `written` the DSP's coming writes:
// only these ranges are flushed and invalidated.
class DspTransport {
 public:
  virtual ~DspTransport() = default;
  virtual const char* name() const = 0;
  // Unavailable: it cannot be sent.
  virtual absl::Status Send(const DspRequest& request, absl::Span<const DspRange> changed,
                            absl::Span<const DspRange> written) = 0;
  // The answer's bytes, of whatever length; none: there was none within `patience`. Unavailable:
  // there will be none.
  virtual absl::StatusOr<std::optional<std::vector<std::byte>>> Receive(
      std::chrono::milliseconds patience) = 0;
};

// Unavailable, one line: library or DSP have no queues.
absl::StatusOr<std::unique_ptr<DspTransport>> MakeQueueTransport(
    std::shared_ptr<const RemoteHandle> handle, std::shared_ptr<const SharedMemory> memory);
std::unique_ptr<DspTransport> MakeCallTransport(std::shared_ptr<const RemoteHandle> handle,
                                                std::shared_ptr<const SharedMemory> memory);

}  // namespace runnel::hexagon
