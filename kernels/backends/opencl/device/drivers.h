#pragma once

#include <string>

#include "proto/base/backend_options.h"

namespace runnel::opencl {

// Whether a driver is registered with OpenCL's loader (ICD): a file in OCL_ICD_VENDORS,
// OPENCL_VENDOR_PATH or /etc/OpenCL/vendors. Loads nothing, so the driver may still fail.
bool HasDriver();
// Whether one of them may be of a GPU, and not only PoCL's, which computes on the host's processor;
// true also if the user names a device (opencl.device).
bool MayHaveGpu(const BackendOptions& options);
// Names, sizes and times of the files that register drivers: what times of an earlier run depend
// on. Loads nothing.
std::string DriverStamp();

}  // namespace runnel::opencl
