#pragma once

namespace runnel::opencl {

// Whether a driver is registered with OpenCL's loader (ICD): a file in OCL_ICD_VENDORS,
// OPENCL_VENDOR_PATH or /etc/OpenCL/vendors. Loads nothing, so the driver may still fail.
bool HasDriver();

}  // namespace runnel::opencl
