#include "worker/stage/stage_evaluation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

void StageEvaluation::Begin(Sequence first, int64_t micro_batches) {
  course_ = Course{first, first.value(), first.value() + micro_batches, {}, {}};
}

int64_t StageEvaluation::SamplesOf(int64_t sequence) const {
  const int64_t before = (sequence - course_->first.value()) * batch_size_;
  return std::min(batch_size_, samples_ - before);
}

absl::Status StageEvaluation::Arrived(FrameKind kind, Sequence sequence, int64_t samples,
                                      Payload payload) {
  if (sequence.value() < (under_way() ? course_->next : 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation micro-batch ", sequence.value(), " is out of order"));
  }
  if (samples < 1 || samples > batch_size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation micro-batch of ", samples, " samples"));
  }
  if (kind == FrameKind::kEvalLabels) {
    arrived_.AddLabels(sequence.value(), std::move(payload));
  } else {
    arrived_.AddInput(sequence.value(), std::move(payload));
  }
  return absl::OkStatus();
}

bool StageEvaluation::Start(std::vector<Effect>& effects) {
  if (!under_way() || course_->next == course_->end) return false;
  std::optional<Arrivals::Batch> arrived = arrived_.Take(course_->next, has_loss_);
  if (!arrived.has_value()) return false;
  const Sequence sequence(course_->next);
  effects.push_back(AcknowledgeEffect{
      first_stage_ ? Peer::kFeed : Peer::kUpstream,
      first_stage_ ? FrameKind::kEvalInput : FrameKind::kEvalActivation, sequence});
  if (has_loss_)
    effects.push_back(AcknowledgeEffect{Peer::kFeed, FrameKind::kEvalLabels, sequence});
  effects.push_back(EvaluateEffect{sequence, SamplesOf(sequence.value()), std::move(arrived->input),
                                   std::move(arrived->labels)});
  return true;
}

void StageEvaluation::Finish(ComputeResult result, std::vector<Effect>& effects) {
  ++evaluated_;
  const Sequence sequence(course_->next++);
  const int64_t samples = SamplesOf(sequence.value());
  LossCounters& loss = course_->loss;
  if (has_loss_) {
    loss.loss_sum += result.loss_sum;
    loss.correct += result.correct;
    loss.samples += samples;
    course_->counts.Add(result.counts);
  } else {
    effects.push_back(SendEffect{Peer::kDownstream, FrameKind::kEvalActivation, sequence, samples,
                                 std::move(result.tensor)});
  }
  if (course_->next < course_->end) return;
  if (has_loss_) {
    effects.push_back(EvaluationDoneEffect{course_->first, loss.loss_sum, loss.correct,
                                           loss.samples, std::move(course_->counts)});
  }
  course_.reset();
}

}  // namespace runnel
