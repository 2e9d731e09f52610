#include "central/run/save_checkpoint.h"

#include <string>
#include <utility>

#include "central/records/checkpoint.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::Status SaveCheckpoint(const RunSetup& setup, std::vector<TrainingChange> changes,
                            const Plan& plan, const std::vector<Device>& devices,
                            const StateCollected& collected, JournalWriter* journal) {
  const RunSettings& settings = setup.settings;
  if (settings.checkpoint_dir.empty()) return absl::OkStatus();
  Checkpoint checkpoint;
  checkpoint.step = collected.step;
  checkpoint.resumable = setup.barriers.IsBarrier(collected.step);
  checkpoint.settings = settings;
  checkpoint.model = setup.model;
  checkpoint.plan = plan;
  checkpoint.training = setup.training;
  DropChangesAfter(collected.step, changes);
  checkpoint.changes = std::move(changes);
  for (const Device& device : devices) checkpoint.device_names.push_back(device.hello.name);
  checkpoint.state = collected.state;
  checkpoint.journal = settings.journal;
  RUNNEL_ASSIGN_OR_RETURN(const std::string path,
                          WriteCheckpoint(checkpoint, settings.checkpoint_dir));
  return journal == nullptr ? absl::OkStatus()
                            : journal->Append(CheckpointWritten{collected.step, path});
}

}  // namespace runnel
