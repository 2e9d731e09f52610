#pragma once

// A running training as it is shown.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "central/display/progress.h"
#include "central/records/stage_status.h"
#include "central/records/summary.h"
#include "proto/base/training/grid_bits.h"
#include "proto/transport/control/members.h"

namespace runnel {

// What does not change while a run lasts.
struct RunFacts {
  std::string model;
  std::string dataset;
  std::string schedule;
  std::string policy;
  std::string recipe;
  std::vector<std::string> layers = {};  // names
  int64_t local_workers = 0;
  int64_t dialling_workers = 0;
  // The command by which a worker joins, and the one of its first time; without TLS only the first;
  // none: nobody dials in.
  std::vector<std::string> join_commands = {};
};

enum class RunPhase : uint8_t { kWaiting, kPreparing, kTraining, kEvaluating, kPaused, kDone };
inline constexpr absl::string_view kRunPhases[] = {"waiting",    "preparing", "training",
                                                   "evaluating", "paused",    "done"};
inline absl::string_view Name(RunPhase phase) { return kRunPhases[static_cast<int>(phase)]; }

// A worker that takes part, or is lost.
struct WorkerView {
  Member member;
  double heard_s_ago = -1;  // since its last message; below 0: it is lost

  bool is_here() const { return heard_s_ago >= 0; }
};

// A link of the plan that holds, as it was planned.
struct LinkView {
  double bits_forward = 0;  // an element, by the codec that holds now; 0: they depend on the shape
  double bits_backward = 0;
  PlanBandwidth::Link expected = {};
};

// A run as it stands.
struct RunView {
  RunPhase phase = RunPhase::kWaiting;
  std::string doing = {};  // what training waits for; empty: nothing
  double done_share = 0;   // of that
  ProgressState progress = {};
  Plan plan = {};
  std::vector<StageStatus> stages = {};
  int64_t first_step = 0;  // of this stretch of the run
  int64_t training_ns = 0;
  int64_t plan_ns = 0;  // time since the plan came into force
  double samples_per_s = 0;
  double learning_rate = 0;
  PeriodComparison period = {};  // the last report's comparison
  std::vector<RecoverySummary> recoveries = {};
  ReplicationSummary replication = {};
  std::vector<NoiseSummary> gradient_noise = {};  // measurements so far
  std::vector<StageSeconds> stage_seconds = {};   // by stage; empty: nothing is known
  std::vector<int64_t> stage_samples = {};        // that each has trained since the plan holds
  std::vector<LinkView> links = {};               // of the plan
  GridBits grid_bits = {};  // of recipes with grids, at the step under way; 0: it has none
  std::vector<WorkerView> workers = {};
  std::vector<GateSummary::Gate> gates =
      {};  // of models with gates: choices up to the last barrier
  std::vector<GateSummary::Target> gate_targets = {};  // of --cost-target, likewise
};

}  // namespace runnel
