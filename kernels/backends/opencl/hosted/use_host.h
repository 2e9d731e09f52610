#pragma once

// OpenCL's functions by way of a vendor host (kernels/backends/vendor_host): objects.cc and commands.cc define
// those that the backend uses, under their own names, and passes each call on. They take the place
// of a library of OpenCL, either linked into a static worker or as a shared object that is loaded
// in its stead.
//
// Memory of the device is never the host's (CL_DEVICE_HOST_UNIFIED_MEMORY is 0), maps are copies,
// and whatever is enqueued with bytes of this process is done when it returns.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace runnel::opencl {

// Starts the host that all calls of this process go to, if there is none. Unavailable: as
// HostProcess::Start.
absl::Status UseHost(const std::string& program, const std::vector<std::string>& libraries);

struct HostUse {
  std::string library;  // that the host loaded
  pid_t pid = -1;
  int64_t copied_bytes = 0;
};
// Of the host that is used.
HostUse UseOfHost();

}  // namespace runnel::opencl

// UseHost of the shared object; null or empty `libraries` end. Null: it is loaded. Else why not; the
// text is there until the next call.
extern "C" const char* runnel_use_opencl_host(const char* program, const char* const* libraries);
