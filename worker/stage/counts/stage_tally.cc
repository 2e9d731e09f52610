#include "worker/stage/counts/stage_tally.h"

namespace runnel {

StageTally::StageTally(const Counted& counted)
    : counts_macs_(counted.macs || counted.gates),
      work_(counted.gates ? std::make_unique<StageWork>() : nullptr),
      range_(counted.range ? std::make_unique<RangeTally>() : nullptr) {}

void StageTally::BeginForward(const Program& program, const GridBits& bits) {
  if (!counts_macs_) return;
  auto known = macs_.find(&program);
  if (known == macs_.end()) known = macs_.emplace(&program, ProgramMacs::OfTraining(program)).first;
  if (work_ == nullptr) {
    effective_macs_ = effective_macs_ + known->second.At(bits);
  } else if (!HasGates(program)) {
    work_->AddAll(known->second, bits);
  }
}

WorkTally* StageTally::WorkOf(const Program& program) {
  if (work_ == nullptr) return nullptr;
  const auto known = macs_.find(&program);
  if (known == macs_.end()) return nullptr;
  work_->Begin(known->second);
  return work_.get();
}

void StageTally::EndPart(const Program& program, Part part) {
  if (range_ == nullptr) return;
  for (const Instruction& instruction : program.part(part)) {
    if (RangeTally::MakesGradients(instruction.code))
      gradient_values_ += program.buffers[instruction.outputs[0]].shape.elements();
  }
}

void StageTally::Fill(Telemetry& telemetry) const {
  telemetry.effective_macs = work_ != nullptr ? work_->effective() : effective_macs_.load();
  telemetry.macs_done = work_ != nullptr ? work_->done() : 0;
  telemetry.clipped_steps = clipped_steps_;
  if (range_ == nullptr) return;
  telemetry.gradient_values = gradient_values_;
  telemetry.gradients_saturated = range_->gradients_saturated();
  telemetry.gradient_underflows = range_->gradient_underflows();
  telemetry.activations_saturated = range_->activations_saturated();
}

}  // namespace runnel
