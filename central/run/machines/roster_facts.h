#pragma once

// Facts of a run's devices for planner, journal and operators.

#include <cstdint>
#include <string>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/records/journal.h"
#include "central/run/machines/active_plan.h"
#include "central/run/machines/roster.h"
#include "proto/base/plan/device_times.h"
#include "proto/transport/control/members.h"

namespace runnel {

// Facts by device number. paths: LinkProbe::paths().
std::vector<DeviceFacts> FactsOf(const Roster& roster, const std::vector<PathFigures>& paths);

// The plan for the journal. times: by device number, of those that were measured.
PlanDecided DecidedOn(const Roster& roster, int64_t step, Plan plan,
                      const std::vector<DeviceTimes>& times);

// step: the last barrier. paused: training stands there, or will at the next one.
MemberList MembersOf(const Roster& roster, const ActivePlan& active, int64_t step, bool paused);

// A line for each stage: its backend, the reason, and the worth of its times. all: also of stages
// that only a CPU could have had.
std::vector<std::string> ProcessorLines(const Roster& roster, const Plan& plan, bool all);

}  // namespace runnel
