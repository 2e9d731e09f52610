#include "central/run/checkpoints/run_checkpoints.h"

#include "absl/status/statusor.h"
#include "proto/base/status_macros.h"

namespace runnel {

void RunCheckpoints::Begin(std::string folder, const RunClaim* claim, JournalThread* journal,
                           CheckpointWriter::OnEnd on_end) {
  writer_ = std::make_unique<CheckpointWriter>(
      [folder = std::move(folder), claim,
       journal](const Checkpoint& checkpoint) -> absl::StatusOr<std::string> {
        if (claim != nullptr) RUNNEL_RETURN_IF_ERROR(claim->CheckHeld());
        // A check-point that the journal knows nothing of could not be gone on from.
        if (journal != nullptr) RUNNEL_RETURN_IF_ERROR(journal->Flush());
        return WriteCheckpoint(checkpoint, folder);
      },
      std::move(on_end));
}

void RunCheckpoints::Add(Checkpoint checkpoint, bool is_last) {
  ++under_way_;
  if (is_last) failures_.ExpectLast(checkpoint.step);
  writer_->Add(std::move(checkpoint));
}

absl::Status RunCheckpoints::Ended(const CheckpointEnd& end, std::string& warning) {
  --under_way_;
  return failures_.Add(end, warning);
}

}  // namespace runnel
