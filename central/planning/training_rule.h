#pragma once

// Who proposes to change the training while it goes on. The coordinator asks at every barrier,
// after its evaluation and before the planner; what is proposed is journalled and granted to all
// stages with the training behind the barrier (proto/base/training/training_change.h).

#include <cstdint>
#include <optional>
#include <string>

#include "central/planning/barrier_report.h"
#include "proto/base/training/training_change.h"

namespace runnel {

struct ChangeTraining {
  TrainingChange change;  // its from_step is the report's
  std::string why;        // for people
};

// Deterministic: the same calls give the same answers. One thread.
class TrainingRule {
 public:
  virtual ~TrainingRule() = default;
  // Called once a barrier, in ascending order of steps. None: everything stays.
  virtual std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) = 0;
  // Training goes on from the barrier at `step`; what was seen after it is void.
  virtual void GoBackTo(int64_t step) = 0;
};

}  // namespace runnel
