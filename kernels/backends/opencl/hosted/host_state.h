#pragma once

// What the functions of OpenCL that go to a vendor host have in common. The names and arguments of
// those functions are the standard's (OpenCL 1.2); what the backend does not use (events, callbacks,
// memory of the host in buffers) is refused.

// The version whose functions we use; the headers know later ones.
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/backends/vendor_host/host_process.h"

#define RUNNEL_EXPORT extern "C" __attribute__((visibility("default")))

namespace runnel::opencl {

// Rows of the host's table.
enum HostRow : uint32_t {
#define HOST_FUNCTION(row, name, kinds) k##row,
#include "kernels/backends/vendor_host/opencl_functions.inc"
#undef HOST_FUNCTION
};

// A copy of a buffer's bytes.
struct CopiedMap {
  cl_mem buffer = nullptr;
  size_t offset = 0;
  bool is_written = false;
  std::vector<std::byte> bytes;  // with room to align them
};

// Never ends, as a library does not: objects that know it may go when the process does.
struct HostState {
  // Null: none was started. One that was lost stays, since others may still ask it.
  std::atomic<HostProcess*> host = nullptr;
  // A handle as the backend sees it is none that it could make up from a number, and none of the next
  // host.
  std::atomic<uint64_t> salt = 0;
  // Of what follows. A call holds its host when it takes it: whoever has it makes none.
  std::mutex mutex;
  HostProcessOptions options;
  std::set<cl_mem> memory;  // handles that an argument of a kernel may be
  std::map<void*, CopiedMap> maps;
};
HostState& TheHost();

inline HostCall CallOf(HostRow row) { return HostCall(*TheHost().host, row); }

// Between handles of the backend and numbers of the host.
template <typename T>
T HandleFrom(uint64_t number) {
  return number == 0 ? nullptr : reinterpret_cast<T>(number ^ TheHost().salt);
}
inline uint64_t NumberOf(const void* handle) {
  return handle == nullptr ? 0 : reinterpret_cast<uint64_t>(handle) ^ TheHost().salt;
}

// Sends the call. CL_DEVICE_NOT_AVAILABLE: the host is lost.
cl_int CodeOf(HostCall& call);
// A call with this object alone.
cl_int CallWith(HostRow row, const void* object);

}  // namespace runnel::opencl
