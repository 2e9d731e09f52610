#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/base/backend_options.h"

namespace runnel::opencl {

// Whether a driver is registered with OpenCL's loader (ICD): a file in OCL_ICD_VENDORS,
// OPENCL_VENDOR_PATH or /etc/OpenCL/vendors; or a phone's vendor has a library of its own, which
// needs no loader; or the user names one (opencl.library), or a vendor host. Where nobody names one,
// a static worker also needs the vendor host beside it. Loads nothing, so the driver may still fail.
bool HasDriver(const BackendOptions& options);
// Whether one of them may be of a GPU, and not only PoCL's, which computes on the host's processor;
// true also if the user names a device (opencl.device). False where the vendor host that is to load
// it is no program.
bool MayHaveGpu(const BackendOptions& options);
// Loads the library that has OpenCL's functions, for as long as the process lives: whoever is loaded
// after it finds them. opencl.library alone where it is given; else the system's loader, then what
// vendors install where. With opencl.host, and always in a static worker, a vendor host loads it, and
// its functions are those of hosted/. InvalidArgument, one line: each library that was tried, and why
// it failed.
absl::Status LoadOpenClLibrary(const BackendOptions& options);
// Names, sizes and times of the files that register drivers: what times of an earlier run depend
// on, and those of vendors' own libraries; in a static worker its vendor host too. Loads nothing.
std::string DriverStamp();

}  // namespace runnel::opencl
