#pragma once

// Backend "opencl": niti and fp32 on an OpenCL device. Integers have the bytes of every other
// backend, floats those of a device and driver. The state stays on the device.

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/opencl/device/device.h"
#include "kernels/backends/opencl/device/session.h"

namespace runnel {

// On the device that option opencl.device names, or the best.
// InvalidArgument: "no OpenCL here", and why, or a variable of the environment and what it may say.
// settings.threads is not looked at.
absl::StatusOr<std::unique_ptr<Backend>> MakeOpenClBackend(const BackendSettings& settings);

namespace opencl {

// Errors as Session::Open. Errors of the backend: Allocate: ResourceExhausted: the device has no
// room. Prepare: FailedPrecondition: the device does not compile the kernels; ResourceExhausted: a
// tensor is too large for it. Executable::Run: Unavailable once the device is lost (later
// executables get it anew), InvalidArgument for a label that is no class, FailedPrecondition if an
// area that the part touches is not bound.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendWith(const Options& options);
// A backend on a session of the caller's, whose chosen_tiles are the caller's too: it has no tuner,
// and executables made after the session's device was lost fail.
std::unique_ptr<Backend> MakeBackendOn(std::shared_ptr<Session> session);

}  // namespace opencl
}  // namespace runnel
