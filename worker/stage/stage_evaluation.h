#pragma once

// A stage's part in the evaluations at barriers: micro-batches of the test set, one after the
// other, forward only. StageRuntime decides when a micro-batch may be computed.

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker/stage/arrivals.h"
#include "worker/stage/stage_effects.h"

namespace runnel {

// One thread.
class StageEvaluation {
 public:
  // batch_size: samples of all micro-batches but the last one; samples: of an evaluation.
  StageEvaluation(bool first_stage, bool has_loss, int64_t batch_size, int64_t samples)
      : first_stage_(first_stage),
        has_loss_(has_loss),
        batch_size_(batch_size),
        samples_(samples) {}

  void Begin(Sequence first, int64_t micro_batches);
  bool under_way() const { return course_.has_value(); }
  // The feed may be ahead of the request that begins the evaluation, never behind. InvalidArgument:
  // it is behind, or of a wrong size.
  absl::Status Arrived(FrameKind kind, Sequence sequence, int64_t samples, Payload payload);
  // Emits the effects of the next micro-batch's computation. False: it is not all there, or there
  // is none.
  bool Start(std::vector<Effect>& effects);
  // The micro-batch that was started is computed.
  void Finish(ComputeResult result, std::vector<Effect>& effects);
  // Micro-batches, of all evaluations.
  int64_t evaluated() const { return evaluated_; }

 private:
  struct Course {
    Sequence first;
    int64_t next = 0;  // evaluation sequences
    int64_t end = 0;
    LossCounters loss;
    ClassCounts counts;
  };
  int64_t SamplesOf(int64_t sequence) const;

  const bool first_stage_;
  const bool has_loss_;
  const int64_t batch_size_;
  const int64_t samples_;
  std::optional<Course> course_;
  Arrivals arrived_;
  int64_t evaluated_ = 0;
};

}  // namespace runnel
