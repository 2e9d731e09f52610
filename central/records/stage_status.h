#pragma once

// A stage of the current plan, with its worker's last report.

#include <string>

#include "proto/base/plan/plan.h"
#include "proto/transport/control/control.h"

namespace runnel {

struct StageStatus {
  StagePlan plan;
  std::string worker;   // name
  Telemetry telemetry;  // sums since the plan holds
  // The stage before cannot dial it: the link between them goes by way of central.
  bool relayed = false;
};

}  // namespace runnel
