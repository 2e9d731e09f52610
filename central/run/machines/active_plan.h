#pragma once

// The plan that holds and where its stages are: what each machine of a run is shown.

#include <vector>

#include "central/records/stage_status.h"
#include "central/run/machines/run_effects.h"
#include "proto/base/plan/plan.h"

namespace runnel {

struct ActivePlan {
  Plan plan;                              // without stages: no plan holds yet
  Sequence first_sequence;                // training by this plan began here
  std::vector<ConnectionId> connections;  // by stage
  std::vector<StageStatus> stages;        // by stage: what it last said of itself
};

inline void SendToStages(const ActivePlan& active, const CentralMessage& message,
                         RunEffects& effects) {
  for (const ConnectionId connection : active.connections)
    effects.push_back(SendControl{connection, message});
}

}  // namespace runnel
