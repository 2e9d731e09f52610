#pragma once

// The state that layers hand on from one to the next beside their tensors (OpKind::kCarriedState),
// where it crosses a stage's ends: behind the boundary tensors, in the rows of side_values.h. Pure
// functions; any thread.

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ir/program.h"
#include "kernels/ir/stage/op_nodes.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/number_format.h"

namespace runnel {

// Buffers of a program; kNoBuffer: nobody behind that end reads the state of one in front of it.
struct CarriedState {
  BufferIndex input = kNoBuffer;
  BufferIndex input_gradient = kNoBuffer;  // none either where no gradient leaves
  BufferIndex output = kNoBuffer;
  BufferIndex output_gradient = kNoBuffer;
};

// Adds the buffers to a program whose layers, shapes and needs_input_gradient are known. `placed`:
// StageDraft::placed. InvalidArgument: a state crosses an end and `numbers` has no rows for it
// (SideValuesOf).
absl::StatusOr<CarriedState> PlaceCarriedState(const ModelSpec& model, const NumberFormat& numbers,
                                               Program& program, std::vector<bool>& placed);

}  // namespace runnel
