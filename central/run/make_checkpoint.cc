#include "central/run/make_checkpoint.h"

#include <utility>

namespace runnel {

Checkpoint MakeCheckpoint(const RunSetup& setup, std::vector<TrainingChange> changes,
                          const Plan& plan, const std::vector<Device>& devices,
                          StateCollected collected) {
  Checkpoint checkpoint;
  checkpoint.step = collected.step;
  checkpoint.resumable = setup.barriers.IsBarrier(collected.step);
  checkpoint.settings = setup.settings;
  checkpoint.model = setup.model;
  checkpoint.plan = plan;
  checkpoint.training = setup.training;
  DropChangesAfter(collected.step, changes);
  checkpoint.changes = std::move(changes);
  for (const Device& device : devices) checkpoint.device_names.push_back(device.hello.name);
  checkpoint.state = std::move(collected.state);
  checkpoint.journal = setup.settings.journal;
  return checkpoint;
}

}  // namespace runnel
