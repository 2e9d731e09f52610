#pragma once

// Runs an INT8 graph on a backend that has the instructions over codes (code_rule.h): one program a
// pass, whose values stay with the backend. Layers that stay in FP32 are computed on the host
// (real_conv.h), before or after it.

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/models/graph_executor.h"

namespace runnel::inference {

// graph: borrowed, checked. Errors: those of CompileGraph, and of the backend.
absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeProgramExecutor(
    const Int8Graph& graph, std::unique_ptr<Backend> backend);
// On a backend of the caller's.
absl::StatusOr<std::unique_ptr<GraphExecutor>> MakeProgramExecutor(const Int8Graph& graph,
                                                                   Backend& backend);

}  // namespace runnel::inference
