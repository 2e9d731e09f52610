#pragma once

// Runs to show.

#include "central/display/run_view.h"

namespace runnel {

// Two stages on workers a and b, a third worker without a stage.
inline RunView TwoStages() {
  RunView view;
  view.phase = RunPhase::kTraining;
  view.plan.generation = Generation(1);
  view.plan.stages = {{{Seat{DeviceId(0)}}, 0, 1, 2}, {{Seat{DeviceId(1)}}, 2, 4, 1}};
  view.plan.links.resize(1);
  view.stages = {{view.plan.stages[0], "a", {}}, {view.plan.stages[1], "b", {}}};
  for (const char* name : {"a", "b", "c"}) {
    WorkerView worker;
    worker.member.name = name;
    worker.heard_s_ago = 0.25;
    view.workers.push_back(worker);
  }
  view.workers[0].member.local = true;
  return view;
}

}  // namespace runnel
