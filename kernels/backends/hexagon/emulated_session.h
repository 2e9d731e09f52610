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
  uint32_t private_bytes = 1u << 29;  // likewise: the kernels' scratch and the packed weights
  uint32_t packed_bytes = 0;          // of the private ones, for packed weights; 0: half
  // What programs take of the shared bytes, packed weights cannot have: both together are a budget.
  bool packed_gets_rest = false;
  uint32_t vtcm_bytes = 256 << 10;  // what a Hexagon V66 has; 32 KiB at least
  // So long without an operation done: the program hangs. Before central takes the worker for stuck
  // (deploy/OPERATORS.md, "Who is lost").
  int stall_seconds = 150;
  std::string why_emulated;  // for the description
};

// The command for the emulator and the program that lies beside this process's binary. NotFound,
// one line: which of them is not there.
absl::StatusOr<std::vector<std::string>> FindEmulator();

// Starts the program and opens the session. Unavailable: it does not start or answers nonsense.
absl::StatusOr<std::unique_ptr<DspSession>> OpenEmulatedSession(EmulatedSessionOptions options);

}  // namespace runnel::hexagon
