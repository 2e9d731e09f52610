#pragma once

// Backend "hexagon": the integer recipes on a Hexagon DSP with its vector extensions. Bytes as on
// every other backend. Option hexagon.dsp says which DSP: this device's (`device`), one under
// qemu-hexagon (`emulated`), or the device's where its library is and else the emulated one
// (`auto`). RUNNEL_DSP_LIBRARY and RUNNEL_DSP_OBJECTS say where library and shared objects are.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/hexagon/dsp_session.h"

namespace runnel {

// Opens a session, whose memory settings.device_memory_bytes limits. InvalidArgument: "no DSP
// here", and why. settings.threads is not looked at.
absl::StatusOr<std::unique_ptr<Backend>> MakeHexagonBackend(const BackendSettings& settings);
// Whether the device's library, or program and emulator are there. Starts and loads nothing.
bool IsHexagonInstalled(absl::string_view name, const BackendOptions& options);
// Whether the device's own library is there, and not only the emulator, which no device is slower
// than. Loads nothing.
bool HasHexagonDevice(const BackendOptions& options);
// Where the device's files are said to be: what times of an earlier run depend on.
std::string HexagonStamp();

namespace hexagon {

using OpenFn = std::function<absl::StatusOr<std::unique_ptr<DspSession>>()>;
// A backend on a session of the caller's. Executable::Run: Unavailable once the DSP is lost; its
// results are checked for plausibility before the host uses them. Programs and memory made after
// that get a session from `open`, if there is one, or its error.
std::unique_ptr<Backend> MakeBackendOn(std::unique_ptr<DspSession> session, OpenFn open = nullptr);

}  // namespace hexagon
}  // namespace runnel
