#include "central/run/checkpoints/make_checkpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/base/training/dials/barrier_every.h"

namespace runnel {
namespace {

// Number of dialling workers that the run needs when it goes on.
int64_t DiallingWorkers(const RunSetup& setup, const Coordinator& run) {
  const std::vector<Device>& devices = run.devices();
  // No worker was started: a cluster within one process.
  if (std::none_of(devices.begin(), devices.end(), [](const Device& d) { return d.local; }))
    return setup.settings.workers;
  if (setup.policy->chooses_devices) return run.dialling_workers();
  int64_t count = 0;
  for (const int device : run.plan().devices())
    count += devices[static_cast<size_t>(device)].local ? 0 : 1;
  return count;
}

}  // namespace

Checkpoint MakeCheckpoint(const RunSetup& setup, const std::string& control_address,
                          const Coordinator& run, StateCollected collected) {
  Checkpoint checkpoint;
  checkpoint.step = collected.step;
  checkpoint.settings = setup.settings;
  const int64_t dialling = DiallingWorkers(setup, run);
  if (setup.settings.workers > 0 || dialling > 0) checkpoint.settings.listen = control_address;
  // The plan has them; those of the user are for as many workers as there were.
  if (dialling != checkpoint.settings.workers) checkpoint.settings.caps.clear();
  checkpoint.settings.workers = dialling;
  if (std::optional<int64_t>& at_least = checkpoint.settings.at_least; at_least.has_value())
    at_least = std::min(*at_least, dialling);
  checkpoint.model = setup.model;
  checkpoint.data_text = setup.data_text;
  checkpoint.plan = run.plan();
  checkpoint.training = setup.training;
  checkpoint.changes = run.ChangesAt(collected.step);
  checkpoint.resumable =
      BarrierRuleUpTo(setup.barriers, checkpoint.changes, collected.step).IsBarrier(collected.step);
  checkpoint.rules = run.RuleStatesAt(collected.step);
  for (const Device& device : run.devices()) checkpoint.device_names.push_back(device.hello.name);
  checkpoint.state = std::move(collected.state);
  checkpoint.journal = setup.settings.journal;
  return checkpoint;
}

}  // namespace runnel
