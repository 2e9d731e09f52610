#pragma once

// How far a run is and what it came to: follows what the stages report, the plans, barriers and
// evaluations; says it as the display's view and as the summary. One thread.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "central/display/run_display.h"
#include "central/display/timeline.h"
#include "central/records/journal.h"
#include "central/records/loss_since.h"
#include "central/records/stage_status.h"
#include "central/records/summary.h"
#include "central/records/training_log.h"
#include "central/run/recovery_times.h"
#include "central/run/run_setup.h"
#include "central/run/training_clock.h"
#include "proto/base/model/model_state.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/codecs/link_levels.h"

namespace runnel {

class RunRecord {
 public:
  // `setup` and `clock` outlive this. Training from first_step to stop_step.
  RunRecord(const RunSetup* setup, const Batching& batching, int64_t first_step, int64_t stop_step,
            const Clock* clock);

  TrainingClock& clock() { return clock_; }
  RecoveryTimes& recoveries() { return recoveries_; }

  // From now on barriers and evaluations are rows of `log`; `warn` is told once if it fails.
  void KeepLog(TrainingLog log, std::function<void(const std::string& line)> warn);
  // Stages with new telemetry.
  void AddTelemetry(const std::vector<StageStatus>& stages);
  // A plan holds from now on; its stages count from nothing. `bandwidth`: what its links were taken
  // for.
  void AddPlan(const PlanDecided& decided, PlanBandwidth bandwidth);
  // All stages have reached it; `stages` as of it.
  void AddBarrier(int64_t step, const std::vector<StageStatus>& stages);
  // Of a barrier, at any time after it.
  void AddEvaluation(const EvaluationRecorded& evaluation, double effective_macs);
  void AddNoise(const NoiseMeasured& noise);
  // Training goes on from the barrier at `step`: what was evaluated or measured after it is void.
  void GoBackTo(int64_t step);

  // As it stands after the barrier at `step`.
  RunView View(const Plan& plan, const std::vector<StageStatus>& stages, int64_t step);
  // At the end, at `step`. `state` is empty of a run that only planned.
  RunSummary Summarise(const std::vector<StageStatus>& stages, int64_t step,
                       const ModelState& state) const;
  const std::vector<PlanDecided>& plans() const { return plans_; }

 private:
  int64_t SamplesUntil(int64_t sequence) const;
  std::vector<StageSeconds> SecondsOf(const std::vector<StageStatus>& stages) const;
  // Of the plan that holds.
  std::vector<LinkView> LinksOf(const Plan& plan, int64_t epoch) const;
  // That each stage has trained since the plan holds.
  std::vector<int64_t> SamplesOf(const std::vector<StageStatus>& stages) const;
  int64_t SamplesUntilStep(int64_t step) const {
    return SamplesUntil(batching_.FirstSequence(step).value());
  }

  // The rows of the log.
  struct Log {
    TrainingLog file;
    std::function<void(const std::string& line)> warn;
    double seconds_before = 0;  // of earlier lives of the run
    LossSince loss;             // since the last row
    LogRow last = {};
  };
  LogRow RowAt(int64_t step) const;
  void LogBarrier(int64_t step, const Telemetry& last_stage);
  void Check(const absl::Status& logged);

  const RunSetup* setup_;
  Batching batching_;
  int64_t first_step_;
  int64_t stop_step_;
  TrainingClock clock_;
  Timeline timeline_;
  LossSince recent_loss_;  // since the last view
  LossSince epoch_loss_;   // since the last barrier with an evaluation
  std::vector<PlanDecided> plans_;
  PlanBandwidth bandwidth_;  // of the last plan
  std::vector<EvaluationSummary> evaluations_;
  std::vector<NoiseSummary> noise_;
  RecoveryTimes recoveries_;
  std::optional<Log> log_;
};

// The run and its links whose codec is `recipe` have the bits of the step under way, at the end those of
// the last one.
void ShowLevelBits(const LinkLevels& levels, const std::vector<TrainingChange>& changes,
                   RunView& view);

}  // namespace runnel
