#pragma once

// Evaluates the states of barriers beside the training: a worker of its own on central's host runs
// the whole model over the test set, while the stages train on. No sample and no activation
// crosses a link. Boundary tensors are uncompressed, as in the pipeline's own evaluation, so that
// the figure is the same (bit for bit within one numerics class).

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/statusor.h"
#include "central/data/dataset.h"
#include "central/run/machines/run_effects.h"
#include "central/run/run_setup.h"
#include "central/run/trainer.h"
#include "proto/base/model/model_state.h"

namespace runnel {

// Whether evaluations of this run go beside the training: where tensors of the test set would cross
// links, and this host has the memory for the whole model. `eval_samples`: of the test set; 0:
// none.
bool EvaluatesBeside(const RunSetup& setup, int64_t eval_samples);

class Evaluator {
 public:
  // Borrowed; both outlive the evaluator.
  struct Parts {
    Transport* transport = nullptr;
    ControlTransport* control = nullptr;
    const Clock* clock = nullptr;
    Logger* logger = nullptr;
    Enrolment enrolment = {};
    bool on_test_set = false;  // although the data have validation samples
  };
  using DoneFn = std::function<void(int64_t step, Generation generation,
                                    const absl::StatusOr<EvaluationFigures>& figures)>;

  // `setup`: of the run whose states are evaluated. `data` is borrowed. on_done is called on a
  // thread of the evaluator, once a state, in the order in which they came. Errors as SetUpRun.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(const RunSetup& setup,
                                                           const DatasetSplits& data, Parts parts,
                                                           DoneFn on_done);
  // Cancels running and waiting evaluations; on_done is not called any more.
  ~Evaluator();

  // The state of all layers at `step` of the plan of this generation; its momentum does not count.
  // changes: those of the training that the evaluation depends on. Returns at once. Any thread.
  void Evaluate(int64_t step, Generation generation, ModelState state,
                std::vector<TrainingChange> changes);

 private:
  struct Job {
    int64_t step = 0;
    Generation generation;
    ModelState state;
    std::vector<TrainingChange> changes;
  };

  Evaluator(RunSetup setup, const DatasetSplits& data, Parts parts, DoneFn on_done);
  void Work();
  absl::StatusOr<EvaluationFigures> Run(Job job);

  const RunSetup setup_;  // setup of a plain loop
  const DatasetSplits& data_;
  const Parts parts_;
  const DoneFn on_done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;        // guarded by mutex_
  Trainer* running_ = nullptr;  // guarded by mutex_
  bool ending_ = false;         // guarded by mutex_
  std::thread thread_;          // last: begins when all else is there
};

}  // namespace runnel
