#pragma once

// Backend "hexagon": the integer recipes on a Hexagon DSP with its vector extensions, here under
// qemu-hexagon. Bytes as on every other backend.

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/hexagon/dsp_session.h"

namespace runnel {

// Opens a session. InvalidArgument: "no DSP here", and why. `threads` is not looked at.
absl::StatusOr<std::unique_ptr<Backend>> MakeHexagonBackend(int threads);
// Whether the program and the emulator are there. Starts nothing.
bool IsHexagonInstalled(absl::string_view name);

namespace hexagon {

using OpenFn = absl::StatusOr<std::unique_ptr<DspSession>> (*)();
// On a session of the caller's. Executable::Run: Unavailable once the DSP is lost; what it computed
// is checked for sense before the host believes it. Programs and memory that are made after that
// get a session from `open`, if there is one; its error.
std::unique_ptr<Backend> MakeBackendOn(std::unique_ptr<DspSession> session, OpenFn open = nullptr);

}  // namespace hexagon
}  // namespace runnel
