#pragma once

// Runs one instruction of a program alone, on random values, for timing. Any thread.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"

namespace runnel {

// A program of one instruction, whose operands lie behind each other.
Program Alone(const Program& program, Part part, Instruction instruction);

// Memory of the host for all operands, with random values.
struct Surroundings {
  std::vector<std::unique_ptr<Memory>> areas;
  Bindings bindings;
};
// ResourceExhausted: the host has no more.
absl::StatusOr<Surroundings> Surround(const Program& alone);

}  // namespace runnel
