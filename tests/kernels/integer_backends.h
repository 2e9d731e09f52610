#pragma once

// The backends, instruction sets and thread counts that run integer recipes here: all must give the
// same bytes.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"

namespace runnel {

// "ref", "cpu:portable/1", "cpu:portable/2", "cpu:avx2/1", ..., "hexagon/1" where its emulator is,
// "opencl/1" where a driver is: name, then threads.
std::vector<std::string> IntegerBackendNames();
// A DSP with so little memory beside its vectors that every large product is cut into pieces.
inline constexpr char kSmallDsp[] = "hexagon_small/1";
// The shared object for devices behind a double of the vendor's library.
inline constexpr char kDeviceDsp[] = "hexagon_device/1";
// An OpenCL device with another dot product than it would be given, with memory of its own, or with
// weights that are read as images.
inline constexpr char kForcedOpenCl[] = "opencl:";
// What is there of these.
std::vector<std::string> ForcedBackendNames();
// Several processors for one program, instructions by a rule: "cpu,ref@alternate/1", ... One of
// them has a second processor whose memory faults when the host touches it (device_backend.h).
std::vector<std::string> MixedBackendNames();
// All processors that there are, or with an even seed cpu and ref, with instructions at random.
std::string RandomlyMixed(int seed);
// grouped_backend.h, with this seed behind it.
inline constexpr char kGrouped[] = "grouped:";
inline constexpr char kMixedDevice[] = "cpu,device/1";
absl::StatusOr<std::unique_ptr<Backend>> MakeIntegerBackend(const std::string& name);
// With only letters, digits and underscores.
std::string TestNameOf(const std::string& backend);

}  // namespace runnel
