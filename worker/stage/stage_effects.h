#pragma once

// What a stage's state machine (stage_runtime.h) has its host do, and what comes of it.

#include <cstdint>
#include <variant>
#include <vector>

#include "proto/base/figures/class_counts.h"
#include "proto/base/ids.h"
#include "proto/base/tensor/payload.h"
#include "proto/base/training/batching.h"
#include "proto/transport/link/frame.h"

namespace runnel {

enum class Peer : uint8_t {
  kUpstream,
  kDownstream,
  kFeed,  // central, for samples and labels
};

// Send a data frame. Emitted in ascending sequence within a kind.
struct SendEffect {
  Peer peer;
  FrameKind kind;
  Sequence sequence;
  int64_t samples;
  Payload payload;
};
// Tell the peer that everything of this kind up to `sequence` has been consumed.
struct AcknowledgeEffect {
  Peer peer;
  FrameKind kind;
  Sequence sequence;
};
// Compute effects: at most one is outstanding; each is answered by ComputeDone.
struct ForwardEffect {
  MicroBatch place;
  int64_t version;  // optimizer steps that the weights to use have seen: the newest
  Payload input;
  Payload labels;  // labels, for the stage with the loss
};
struct InputGradientEffect {
  MicroBatch place;
  Payload output_gradient;  // empty where the loss is
};
// The weight-gradient of the oldest micro-batch that waits for one; then, if `step`, the optimizer
// step.
struct WeightGradientEffect {
  MicroBatch place;
  bool step;
  bool sums_squares = false;  // ComputeResult::squares are wanted; no step
};
// The optimizer step behind the weight-gradient of `place`, with the clipped gradient.
struct StepEffect {
  MicroBatch place;
  double gradient_square;  // of the whole model
};
struct EvaluateEffect {
  Sequence sequence;
  int64_t samples;
  Payload input;
  Payload labels;
};
// Codec effects: carried out first in, first out.
struct EncodeEffect {
  Direction direction;
  MicroBatch place;
  Payload tensor;
};
struct DecodeEffect {
  Direction direction;
  MicroBatch place;
  Payload payload;
};
// All micro-batches below `sequence` are done and the lanes are empty.
struct BarrierEffect {
  Sequence sequence;
};
struct EvaluationDoneEffect {
  Sequence first;
  double loss_sum;
  int64_t correct;
  int64_t samples;
  ClassCounts counts = {};
};
// Of a dry run (worker/stage/dry_run/stage_dry_run.h); but for the last all are compute effects.
// From BeginDryRunEffect to EndDryRunEffect nothing that is computed or coded leaves a trace in the
// stage's state.
struct BeginDryRunEffect {};
// The weight-gradient of the micro-batch, without a step; it is the exact one, or the same one's
// with codecs.
struct CompareGradientEffect {
  MicroBatch place;
  bool is_coded;
};
struct EndDryRunEffect {};
struct DryRunDoneEffect {
  Sequence first;
};

using Effect = std::variant<SendEffect, AcknowledgeEffect, ForwardEffect, InputGradientEffect,
                            WeightGradientEffect, StepEffect, EvaluateEffect, EncodeEffect,
                            DecodeEffect, BarrierEffect, EvaluationDoneEffect, BeginDryRunEffect,
                            CompareGradientEffect, EndDryRunEffect, DryRunDoneEffect>;

// Result of a compute effect.
struct ComputeResult {
  Payload tensor;  // forward, evaluate: the output (none where the loss is); input-gradient: the
                   // gradient, if any
  double loss_sum = 0;  // sum of losses at the stage with the loss
  int64_t correct = 0;
  ClassCounts counts = {};           // of an evaluation
  std::vector<double> squares = {};  // of the step's gradient, by layer
};

// Sums since the start, where the loss is.
struct LossCounters {
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t samples = 0;
};

}  // namespace runnel
