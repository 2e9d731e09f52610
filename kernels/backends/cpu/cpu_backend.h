#pragma once

// The CPU backend: own kernels for x86, arm64 and any other machine, FP32 and INT8. Needs no
// library.
//
// Activations of rank >= 3 inside a stage lie channels-last; what enters and leaves a stage is
// row-major as its shape says. The contents of kStash and kScratch are in this private layout: only
// the Executable that wrote them can read them.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backends/backend.h"

namespace runnel {

// The best instruction set that this machine has. threads >= 1: of a pool that belongs to the
// backend and its executables; the results do not depend on it. InvalidArgument otherwise.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(int threads);

// The instruction set `cap` and no better one. InvalidArgument lists what this machine has. fused:
// instructions run together where that saves memory traffic; the bytes are the same either way.
absl::StatusOr<std::unique_ptr<Backend>> MakeCappedCpuBackend(absl::string_view cap, int threads,
                                                              bool fused = true);

// "avx512_vnni", "avx512", "avx_vnni", "avx2", "portable", or "i8mm", "dotprod", "neon",
// "portable": what this machine can run, best first.
std::vector<std::string> CpuInstructionSets();

}  // namespace runnel
