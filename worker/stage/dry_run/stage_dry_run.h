#pragma once

// A stage's part in a dry run at a barrier: micro-batches go forth and back without an optimizer
// step, each twice, first with exact boundary tensors, then through codecs of the plan. One pass
// after the other; the effects are training's, in the same order. Frames have sequences of their
// own: pass p of micro-batch k is first + 2 k + p.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/training/codecs/gradient_noise.h"
#include "worker/stage/arrivals.h"
#include "worker/stage/stage_effects.h"

namespace runnel {

// One thread.
class StageDryRun {
 public:
  // The stage's place. Of boundary tensors, by direction: whether they go through the codec lane.
  struct Ways {
    int stage = 0;
    bool first_stage = false;
    bool has_loss = false;
    bool forward_only = false;
    bool sends_gradients = false;
    bool encodes[2] = {false, false};
    bool decodes[2] = {false, false};
  };

  explicit StageDryRun(const Ways& ways) : ways_(ways) {}

  // places: of the micro-batches in training, one or more. coded: in the second pass of each.
  void Begin(Sequence first, std::vector<MicroBatch> places, const CodedWays& coded,
             std::vector<Effect>& effects);
  bool under_way() const { return phase_ != Phase::kNone; }
  // Inputs may come before the request that begins the dry run. InvalidArgument: out of order, or
  // nobody waits for it.
  absl::Status Arrived(FrameKind kind, Sequence sequence, Payload payload,
                       std::vector<Effect>& effects);
  void Decoded(Direction direction, Payload tensor, std::vector<Effect>& effects);
  void Encoded(Direction direction, Payload payload, std::vector<Effect>& effects);
  // The last compute effect is done.
  void Computed(ComputeResult result, std::vector<Effect>& effects);
  // Grows with each pass, over all dry runs.
  int64_t passes() const { return passes_; }

 private:
  enum class Phase : uint8_t {
    kNone,
    kOpening,
    kInput,  // waits for it
    kForward,
    kGradient,  // waits for it
    kInputGradient,
    kWeightGradient,
    kClosing,
  };
  bool is_coded() const { return (next_ - first_.value()) % kDryPasses != 0; }
  // Whether the codec lane has the tensor of this pass. Link i is behind stage i.
  bool Decodes(Direction direction) const {
    const int link = ways_.stage - (direction == Direction::kForward ? 1 : 0);
    return is_coded() && ways_.decodes[static_cast<int>(direction)] && coded_.Has(link, direction);
  }
  bool Encodes(Direction direction) const {
    const int link = ways_.stage - (direction == Direction::kForward ? 0 : 1);
    return is_coded() && ways_.encodes[static_cast<int>(direction)] && coded_.Has(link, direction);
  }
  const MicroBatch& place() const {
    return places_[static_cast<size_t>((next_ - first_.value()) / kDryPasses)];
  }
  // Inputs of the pass, when they are there.
  void TakeInput(std::vector<Effect>& effects);
  void StartForward(Payload input, std::vector<Effect>& effects);
  void StartInputGradient(Payload gradient, std::vector<Effect>& effects);
  void Emit(Direction direction, Payload tensor, std::vector<Effect>& effects);
  void Send(Direction direction, Payload payload, std::vector<Effect>& effects) const;
  void FinishPass(std::vector<Effect>& effects);
  // Goes to the next pass, or ends, when the pass is done and none of its tensors is encoded any more.
  void GoOn(std::vector<Effect>& effects);

  const Ways ways_;
  Phase phase_ = Phase::kNone;
  Sequence first_;
  int64_t next_ = 0;  // the pass that is under way
  std::vector<MicroBatch> places_;
  CodedWays coded_;
  bool is_passed_ = false;  // the pass is computed
  int64_t encoding_ = 0;    // tensors
  int64_t passes_ = 0;
  Payload labels_;
  Arrivals arrived_;
};

}  // namespace runnel
