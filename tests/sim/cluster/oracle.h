#pragma once

// What the weights must be at each barrier: the plans as they were journalled, carried out in one
// place without a network, a clock or a fault.

#include <cstdint>
#include <map>
#include <vector>

#include "central/data/batch_source.h"
#include "central/data/dataset.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/training.h"
#include "tests/sim/cluster/hash_engine.h"

namespace runnel {

class Oracle {
 public:
  // data and zeros (HashEngine's) outlive it.
  Oracle(const TrainingSettings& training, const DatasetSplits& data, const ModelState& zeros);

  // Trains from the barrier at from_step, which is known, by this plan from now on.
  void SetPlan(int64_t from_step, const Plan& plan);
  // The layers' weights at the barrier at `step`: of the plan, or of one before. Null: no plan
  // leads there.
  const std::vector<LayerHash>* At(int64_t step);
  // The share of the test set that an evaluation of the weights at `step` gets right.
  double AccuracyAt(int64_t step);

 private:
  struct Stage;

  // The next action of a stage; false: it must wait, or has reached `end`.
  bool Advance(std::vector<Stage>& stages, size_t at, int64_t end);
  bool Forward(std::vector<Stage>& stages, size_t at);
  // Where gradients are clipped: all stages step, once the last of them has its whole gradient.
  void StepTogether(const MicroBatch& place, std::vector<Stage>& stages);
  std::vector<LayerHash> Train(const std::vector<LayerHash>& from, int64_t from_step,
                               int64_t to_step);

  const TrainingSettings training_;
  const Batching batching_;
  const DatasetSplits& data_;
  const ModelState& zeros_;
  BatchSource source_;
  Plan plan_;
  std::map<int64_t, std::vector<LayerHash>> known_;  // by step
};

}  // namespace runnel
