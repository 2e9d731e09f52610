#pragma once

// Groups instructions into segments, and orders the segments by the bytes of the stage's memory
// that their instructions touch: of two that touch the same bytes, one of them writing, the later
// one waits. A pure function; any thread.

#include <vector>

#include "kernels/ir/co_scheduler/segments.h"
#include "kernels/ir/co_scheduler/value_flow.h"
#include "kernels/ir/program.h"

namespace runnel {

struct SegmentPlan {
  Part part = Part::kForward;
  int processor = 0;
  std::vector<int> instructions;  // as Segment's
  std::vector<int> after;         // as Segment's
};

// Segments of all parts. An instruction joins the last segment of its processor if both have the
// same number in `grouping` and it need not wait for a later segment.
std::vector<SegmentPlan> OrderSegments(const Program& program, const ProgramFlow& flow,
                                       const Assignment& assignment, const Grouping& grouping,
                                       const std::vector<bool>& keeps_values);

}  // namespace runnel
