#pragma once

// --winograd auto: which convolutions of a model go by Winograd's algorithm on this device.

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backends/backend.h"
#include "kernels/models/quantize/quantizer.h"

namespace runnel::inference {

// Seconds by node of a graph on the device that will run it (GraphRunner::TimeNodes).
using TimeGraph = absl::FunctionRef<absl::StatusOr<std::vector<double>>(const Int8Graph& graph)>;

// Takes those candidates that are faster by Winograd's algorithm than without it (by 5 % at least),
// those with the least error of their values first, and of these as many as leave the share of
// `samples` (NCHW, `count`) whose largest logit is the FP32 graph's at most one point below what it
// is without any. quantizer: has observed all samples; keeps the choice. real: its graph. backend:
// what computes the classes. Errors: those of `time` and the backend.
absl::StatusOr<Int8Graph> QuantizeWithChosenWinograd(Quantizer& quantizer, const FoldedGraph& real,
                                                     absl::Span<const float> samples, int64_t count,
                                                     Backend& backend, TimeGraph time);

}  // namespace runnel::inference
