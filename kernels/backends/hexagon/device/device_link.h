#pragma once

// The way to the DSP of this device: library, object, shared memory and transport.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backends/hexagon/device/device_probe.h"
#include "kernels/backends/hexagon/device/dsp_transport.h"

namespace runnel::hexagon {

struct DeviceLinkOptions {
  std::string library;  // the result of FindVendorLibrary
  std::string objects;  // the folder of the shared objects for the DSP
  // Memory of the device, taken at once.
  uint32_t shared_bytes = 384u << 20;
  uint32_t private_bytes = 128u << 20;  // the kernels' scratch and the packed weights
  // The first packet of a queue shows whether the DSP answers; some systems never do.
  std::chrono::seconds greeting = std::chrono::seconds(2);
};

// The object's variables are one process's on the DSP, and that is this process's alone: one link
// at a time. Freed when it goes.
class DeviceSlot {
 public:
  // Waits a moment for a link that is being closed. Unavailable: there is a link.
  static absl::StatusOr<std::unique_ptr<DeviceSlot>> Take();
  ~DeviceSlot();
  DeviceSlot(const DeviceSlot&) = delete;
  DeviceSlot& operator=(const DeviceSlot&) = delete;

 private:
  DeviceSlot() = default;
};

struct DeviceLink {
  std::unique_ptr<DeviceSlot> slot;
  std::shared_ptr<const VendorLibrary> library;
  DspCapabilities dsp;
  std::string object;  // the file that was opened
  std::shared_ptr<const RemoteHandle> handle;
  std::shared_ptr<SharedMemory> memory;
  std::unique_ptr<DspTransport> transport;
  std::string way;  // the transport, and why it is not the queue
};

// Loads the library, asks for the DSP's version, opens the object for it in an unsigned process
// there, shares memory. Unavailable or NotFound, one line: names the missing part.
absl::StatusOr<DeviceLink> OpenDeviceLink(const DeviceLinkOptions& options);

// Its memory stays for those who have areas of it.
void CloseDeviceLink(DeviceLink* link);
// For a DSP that hangs: ends its process, so that waiting calls return, and closes the link beside
// the caller, since closing may wait too.
void AbandonDeviceLink(DeviceLink* link);

}  // namespace runnel::hexagon
