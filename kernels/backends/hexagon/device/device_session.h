#pragma once

// The DSP of this device, by way of the vendor's library. Not verified on hardware.

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backends/hexagon/device/device_link.h"
#include "kernels/backends/hexagon/dsp_session.h"

namespace runnel::hexagon {

struct DeviceSessionOptions {
  DeviceLinkOptions link;
  // As of an emulated session. Where the host's caches do not see what the DSP writes while it
  // computes, a list has to be done within this time.
  int stall_seconds = 150;
};

// The folder beside this process's binary where the build leaves the objects.
std::string DspObjectFolder();

// Opens a link and on it the session. Unavailable or NotFound, one line: what is missing.
absl::StatusOr<std::unique_ptr<DspSession>> OpenDeviceSession(const DeviceSessionOptions& options);

}  // namespace runnel::hexagon
