#pragma once

// A trained FP32 model as nodes for inference: dropouts are gone, ReLUs are part of what they
// follow, batch norms are folded into the convolutions before them:
// w' = w * scale / sqrt(variance + epsilon), b' = (b - mean) * scale / sqrt(...) + shift.

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/models/graph/node.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"

namespace runnel::inference {

// Of kConv alone; empty elsewhere.
struct ConvWeights {
  std::vector<float> weights;  // OHWI: (out_c, kernel_h, kernel_w, in_c / groups)
  std::vector<float> bias;     // out_c
};

struct FoldedGraph {
  std::vector<Node> nodes;
  std::vector<ConvWeights> weights;  // by node
  int64_t classes() const { return nodes.back().outputs(); }
};

// fold_batch_norm = false, or a batch norm behind something else than a convolution that it alone
// reads: a 1x1 depthwise convolution. `state` holds the model's tensors as CheckState demands of
// FP32. InvalidArgument: model and state do not fit, a value larger than kMaxValueElements.
absl::StatusOr<FoldedGraph> FoldModel(const ModelSpec& model, const ModelState& state,
                                      bool fold_batch_norm);

// Runs the graph in FP32 (sums in FP32, in the order of memory): what calibration observes and
// errors are measured against. One thread.
class FoldedExecutor {
 public:
  explicit FoldedExecutor(const FoldedGraph& graph);  // borrowed

  // samples: NCHW, batch of them, normalised. observe: called for each node in order with its
  // output, NHWC. batch >= 1.
  void Run(absl::Span<const float> samples, int64_t batch,
           const std::function<void(size_t node, absl::Span<const float> values)>& observe);

 private:
  const FoldedGraph& graph_;
  std::vector<std::vector<float>> values_;  // by node
  std::vector<std::vector<float>> packed_;  // by node: (group, tap, in, out of the group)
};

// NCHW -> NHWC of one sample.
void ToChannelsLast(const float* nchw, int64_t positions, int64_t channels, float* nhwc);

}  // namespace runnel::inference
