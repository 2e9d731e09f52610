#pragma once

// A running training as it is shown.

#include <cstdint>
#include <string>
#include <vector>

#include "central/display/progress.h"
#include "central/records/stage_status.h"
#include "central/records/summary.h"
#include "proto/base/plan/processor_facts.h"

namespace runnel {

// The processors that a worker's backends compute on.
struct WorkerProcessors {
  std::string worker;
  std::vector<ProcessorFacts> processors;
};

// A run as it stands.
struct RunView {
  std::string model;
  ProgressState progress;
  Plan plan;
  std::vector<StageStatus> stages;
  int64_t training_ns = 0;
  int64_t plan_ns = 0;  // time since the plan came into force
  double samples_per_s = 0;
  PeriodComparison period = {};  // the last report's comparison
  std::vector<RecoverySummary> recoveries = {};
  ReplicationSummary replication = {};
  std::vector<StageSeconds> stage_seconds = {};  // by stage; empty: nothing is known
  std::vector<int64_t> stage_samples = {};       // that each has trained since the plan holds
  std::vector<WorkerProcessors> processors = {};
};

}  // namespace runnel
