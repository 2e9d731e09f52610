#pragma once

// Clipping of a step's gradient by its norm over all stages (--clip-norm; Pascanu et al., "On the
// difficulty of training recurrent neural networks", arXiv 1211.5063, algorithm 1).
//
// The sum of squares goes up from the stage with the loss, as gradients do: each stage adds its
// layers' squares, one layer after the other from the last to the first, to what the next stage
// sent. So the additions are the same, in the same order, whatever the cut. The first stage that
// trains has the sum of all layers. It goes down again ahead of the next activations, and each stage
// takes its step when it is there.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/base/tensor/payload.h"
#include "worker/stage/stage_effects.h"

namespace runnel {

// Of a tensor, in eight lanes of doubles that are added in a fixed order: the same bytes on every
// host.
double SquareSum(const float* values, int64_t elements);
// `sum` and the squares by layer, the last layer's first.
double AddSquares(double sum, absl::Span<const double> by_layer);
// What the gradient is multiplied with so that its norm, the root of `square` over `loss_scale`, is
// at most clip_norm: PyTorch's clip_norm / (norm + 1e-6), at most 1. A norm that is not finite clips
// nothing: who made the value is found as without clipping.
double ClipFactor(double clip_norm, double square, double loss_scale);

// A stage's part in it as a state machine, step by step. One thread.
class GradientNorm {
 public:
  struct Ways {
    bool has_loss = false;
    bool sends_up = false;  // a stage before trains
  };
  explicit GradientNorm(const Ways& ways) : ways_(ways) {}

  // The step of a mini-batch waits for the norm.
  bool under_way() const { return place_.has_value(); }
  // A sum from a neighbour; `place`: of the frame's sequence. version: steps that were taken.
  // InvalidArgument: out of order, or no sum of squares.
  absl::Status Arrived(FrameKind kind, const MicroBatch& place, int64_t version,
                       const Payload& payload, std::vector<Effect>& effects);
  // The stage's own gradient is whole: its squares by layer.
  void Begin(const MicroBatch& place, std::vector<double> squares, std::vector<Effect>& effects);
  // The step was taken.
  void End();
  // The step's effect was put out.
  bool steps() const { return steps_; }

 private:
  void AddOwn(std::vector<Effect>& effects);
  void Know(double square, std::vector<Effect>& effects);

  const Ways ways_;
  std::optional<MicroBatch> place_;  // the mini-batch's last
  std::vector<double> squares_;
  std::optional<double> below_;  // of the layers of later stages
  bool sent_ = false;
  bool steps_ = false;
};

}  // namespace runnel
