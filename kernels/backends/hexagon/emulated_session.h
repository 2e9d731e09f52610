#pragma once

// The DSP under qemu-hexagon: a long-lived program beside this process.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/hexagon/dsp_session.h"

namespace runnel::hexagon {

struct EmulatedSessionOptions {
  std::vector<std::string> command;   // the emulator with its path, then the program
  uint32_t shared_bytes = 1u << 30;   // taken as they are used
  uint32_t private_bytes = 1u << 29;  // the kernels' scratch and the packed weights
  uint32_t packed_bytes = 0;          // part of private_bytes for packed weights; 0: half
  // Whether programs and packed weights share one budget of the shared bytes.
  bool packed_gets_rest = false;
  uint32_t vtcm_bytes = 256 << 10;  // as a Hexagon V66; 32 KiB at least
  uint32_t threads = 1;             // that an operation may use, kMaxThreads at most
  // If no operation is done for this long, the program hangs. Shorter than the time after which
  // central declares the worker stuck (deploy/OPERATORS.md, "Who is lost").
  int stall_seconds = 150;
  std::string why_emulated;  // reason, for the description
};

// The command for the emulator and the program that lies beside this process's binary. NotFound,
// one line: which of them is not there.
absl::StatusOr<std::vector<std::string>> FindEmulator();

// Starts the program and opens the session. Unavailable: it does not start or answers nonsense.
absl::StatusOr<std::unique_ptr<DspSession>> OpenEmulatedSession(EmulatedSessionOptions options);

}  // namespace runnel::hexagon
