#pragma once

// An INT8 graph as a program of typed instructions (program.h), for every backend. Values lie
// channels first, as products of integer recipes take them; a backend that wants them otherwise
// lays them out when it prepares the program.

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
  // Storage::kOutput, in NCHW: int32 sums of the output's logits, before their scales, or FP32
  // logits; else int8 codes, NHWC.
  DType output = DType::kInt8;
};

// What the backend can do (BackendTraits).
struct GraphOptions {
  bool codes_in_products = false;
  // The input of a product stays in its place until the sums are requantised
  // (BackendTraits::delays_products).
  bool keeps_inputs = false;
};

// The instructions that lead from the values of `given` to that of node `output`; nodes that they
// need not are left out. graph: checked; batch >= 1. Unimplemented names a node that no instruction
// of the backend takes.
absl::StatusOr<GraphProgram> CompileGraph(const Int8Graph& graph, int64_t batch,
                                          absl::Span<const size_t> given, size_t output,
                                          const GraphOptions& options);

}  // namespace runnel::inference
