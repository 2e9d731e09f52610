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
  // As in an emulated session. If the host's caches do not see the DSP's writes, a list has to be
  // done within this time.
  int stall_seconds = 150;
  uint32_t threads = 0;  // that an operation may use, kMaxThreads at most; 0: the vector units
};

// The folder beside this process's binary where the build leaves the objects.
std::string DspObjectFolder();

// Opens a link and on it the session. Unavailable or NotFound, one line: names the missing part.
absl::StatusOr<std::unique_ptr<DspSession>> OpenDeviceSession(const DeviceSessionOptions& options);

}  // namespace runnel::hexagon
