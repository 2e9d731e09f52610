#pragma once

// Postpones evaluations that cost too much. An evaluation beside the training needs the weights of
// all stages on central's host. On a slow link these weights displace activations and gradients:
// the second half of LeNet is 1.6 MB, 3.4 s at 4 Mbps. The test set then passes through the whole
// model there, which takes time from a stage on the same processor: how much, the evaluations before
// it have shown. An evaluation that would take more than a share of the training time since the last
// one waits for a later epoch. The last evaluation of a run never waits.
//
// Pure. When a run evaluates changes nothing of its weights.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "central/planning/barrier_report.h"
#include "central/run/machines/run_effects.h"

namespace runnel {

struct EvaluationPaceOptions {
  double most_share = 0;               // largest share of the training time; 0: no limit
  std::vector<int64_t> layer_bytes{};  // weights and statistics, by layer
  int64_t samples_a_step = 1;
  int64_t host_threads = 0;  // threads that central's host runs at once; 0: enough for all
  int64_t worker_threads = 1;
};

class EvaluationPace {
 public:
  EvaluationPace(EvaluationPaceOptions options, int64_t first_step)
      : options_(std::move(options)), last_(first_step) {}

  // Whether to evaluate at `step`; if so, the step counts as evaluated. May be asked again.
  // What was not measured costs nothing. samples_per_s: of the training; 0: not known, then each
  // evaluation is worth it. The first one that waits is logged.
  bool IsWorth(const BarrierReport& report, double samples_per_s, RunEffects& effects);

  // An evaluation took so long.
  void Took(double seconds) {
    took_seconds_ = seconds;
    if (takes_processor_) lost_seconds_ += seconds;
  }
  // That stages on central's host lost to evaluations so far.
  double lost_seconds() const { return lost_seconds_; }

  // Training goes on from this step: later evaluations will be repeated.
  void GoBackTo(int64_t step) { last_ = std::min(last_, step); }

 private:
  // Seconds of bringing the weights to central's host. All paths end there, so their times add up.
  double CollectSeconds(const BarrierReport& report) const;
  // Whether stages on central's host lose a processor to the evaluation: not all have one.
  bool TakesProcessor(const BarrierReport& report) const;

  EvaluationPaceOptions options_;
  int64_t last_;             // step of the last evaluation
  double took_seconds_ = 0;  // Took
  double lost_seconds_ = 0;
  bool takes_processor_ = false;  // as IsWorth saw it last
  bool said_ = false;
};

}  // namespace runnel
