#pragma once

// An INT8 graph as a program of typed instructions (program.h), for backends that compute on a
// device. Values lie channels first there, as products of integer recipes take them. Convolutions
// of Winograd are computed directly: the same sums.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ir/program.h"
#include "kernels/models/graph/int8_graph.h"

namespace runnel::inference {

// A value that the host gives: at `offset_bytes` of Storage::kInput.
struct GivenValue {
  size_t node = 0;
  int64_t offset_bytes = 0;
};

struct GraphProgram {
  Program program;  // Part::kForwardEval alone
  // Of Storage::kParameters; the same for every batch size.
  std::vector<std::byte> parameters;
  // Node 0 of a graph that takes samples: FP32, NCHW. All others: int8 codes, NHWC.
  std::vector<GivenValue> given;
  // Storage::kOutput: int32 sums of the output's logits, before their scales, in NCHW; else int8
  // codes, NHWC.
  bool gives_sums = false;
};

// The instructions that lead from the values of `given` to that of node `output`; nodes that they
// need not are left out. keeps_inputs: the input of a product stays in its place until the sums are
// requantised (BackendTraits::delays_products). graph: checked; batch >= 1. Unimplemented names a
// node that stays in FP32 or has a window that no instruction takes.
absl::StatusOr<GraphProgram> CompileGraph(const Int8Graph& graph, int64_t batch,
                                          absl::Span<const size_t> given, size_t output,
                                          bool keeps_inputs);

}  // namespace runnel::inference
