#pragma once

// Runs a program instruction by instruction, each by its row's kernel, all tensors row-major.

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backends/host/call.h"

namespace runnel::host {

struct KernelRow {
  OpCode code;
  Kernel kernel;
};

// `program` and `rows` outlive the result. Unimplemented names the backend and the first
// instruction that has no row. Executable::Run: FailedPrecondition if an area that the part touches
// is not bound, else as the kernels.
absl::StatusOr<std::unique_ptr<Executable>> Interpret(const Program& program,
                                                      absl::string_view backend,
                                                      absl::Span<const KernelRow> rows);

}  // namespace runnel::host
