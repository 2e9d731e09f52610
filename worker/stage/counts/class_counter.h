#pragma once

// Counts classes of an evaluation's outputs. Pure; any thread.

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/ir/compiler.h"
#include "proto/base/figures/class_counts.h"
#include "proto/base/tensor/payload.h"

namespace runnel {

// One row of outputs a label. The first of equal outputs counts as the larger one. labels: IsLabelOf
// these classes; a mixed one counts as its larger class.
ClassCounts CountClasses(absl::Span<const float> outputs, int64_t classes,
                         absl::Span<const int32_t> labels);

// Of the logits that `program`'s kForwardEval left in `output`. Nothing is counted where the program
// keeps them elsewhere.
ClassCounts CountClasses(const Program& program, const Payload& output, const Payload& labels);

}  // namespace runnel
