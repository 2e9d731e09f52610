#pragma once

// Runs a program segment by segment, each on its processor, and copies values where the processor
// changes. Segments of different processors that do not wait for one another run at the same time:
// those of the host on the caller's thread, those of another processor on the thread of its lane.
//
// Weight-gradients of another processor begin during kInputGradient, as soon as what they read is
// there and the processor has no input-gradients left. When kInputGradient ends, those that have
// not begun are left to kWeightGradient; those that have copied in what they read, go on in memory
// of their own, and kWeightGradient copies out what they wrote. So nothing that a run is bound to
// is touched after it.

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/mixed/platform.h"
#include "kernels/ir/co_scheduler/segments.h"

namespace runnel {

// The state that a run is bound to lies in the host's memory; areas of `platform->versions` that
// runs are bound to outlive the result. No other thread uses the platform's processors meanwhile.
// Errors as Backend::Prepare and Backend::Allocate of the processors; of Executable::Run: theirs,
// and FailedPrecondition if an area that the part touches is not bound. A segment that fails ends
// the others; Run returns when none is under way.
absl::StatusOr<std::unique_ptr<Executable>> PrepareSegments(std::vector<Segment> segments,
                                                            std::shared_ptr<Platform> platform);

}  // namespace runnel
