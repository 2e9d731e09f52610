#pragma once

// Runs a program segment by segment, each on its processor, and copies values where the processor
// changes.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/co_scheduler/home_memory.h"
#include "kernels/co_scheduler/segments.h"

namespace runnel {

// processors: by number, the host first; they outlive the result, as do areas of `versions`' host
// that runs are bound to. The state that a run is bound to lies in the host's memory. Errors as
// Backend::Prepare and Backend::Allocate of the processors; of Executable::Run: theirs, and
// FailedPrecondition if an area that the part touches is not bound.
absl::StatusOr<std::unique_ptr<Executable>> PrepareSegments(
    std::vector<Segment> segments, absl::Span<const std::unique_ptr<Backend>> processors,
    std::shared_ptr<HomeVersions> versions);

}  // namespace runnel
