#pragma once

// What a run waits for while it does not train, for people.

#include <cstdint>
#include <string>
#include <vector>

#include "central/display/run_view.h"
#include "central/run/feed/feeder.h"
#include "central/run/machines/coordinator.h"
#include "proto/transport/control/control_channel.h"

namespace runnel {

// done of total; a total of 0: the run waits for nothing.
struct Waiting {
  std::string what;
  int64_t done = 0;
  int64_t total = 0;
};

// The phase of a run that has not ended. stages_evaluate: they go through the test set now.
RunPhase PhaseOf(const Coordinator& coordinator, bool stages_evaluate, bool is_paused);

// An evaluation by the stages.
Waiting EvaluationOf(const Feeder& feeder);

// layer_bytes: of each layer's state.
Waiting WaitingOf(const Coordinator& coordinator, CentralControl& server,
                  const std::vector<int64_t>& layer_bytes);

}  // namespace runnel
