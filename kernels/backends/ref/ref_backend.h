#pragma once

// Backend `ref`: plain loops, one function an OpCode. It is the specification of the instruction
// set and the oracle of every other backend. Sums are taken in double in the order that the loops
// show and rounded to float once; no result depends on threads or instruction sets.

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"

namespace runnel {

// One thread, whatever `threads` says. numerics_class() is "ref". Never fails.
// Executable::Run: FailedPrecondition if an area that the part touches is not bound,
// InvalidArgument for a label that is no class.
absl::StatusOr<std::unique_ptr<Backend>> MakeRefBackend(int threads);

}  // namespace runnel
