#pragma once

// The backends, instruction sets and thread counts that run integer recipes here: all must give the
// same bytes.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace runnel {

// "ref", "cpu:portable/1", "cpu:portable/2", "cpu:avx2/1", ...: name, then threads.
std::vector<std::string> IntegerBackendNames();
absl::StatusOr<std::unique_ptr<Backend>> MakeIntegerBackend(const std::string& name);
// With only letters, digits and underscores.
std::string TestNameOf(const std::string& backend);

}  // namespace runnel
