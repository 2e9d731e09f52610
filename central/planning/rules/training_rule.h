#pragma once

// Proposes changes of the training while it goes on, by turning a dial
// (proto/base/training/dials/dials.h). The coordinator asks at every barrier, after its evaluation
// and before the planner; a proposal is journalled and granted to all stages with the training
// behind the barrier (proto/base/training/training_change.h).

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "central/planning/barrier_report.h"
#include "proto/base/training/training_change.h"

namespace runnel {

struct ChangeTraining {
  TrainingChange change;  // its from_step is the report's
  std::string why;        // reason, for people
};

// Deterministic: the same calls give the same answers. One thread.
class TrainingRule {
 public:
  virtual ~TrainingRule() = default;
  // It looks at barriers whose step is a multiple of this; 0: it takes them as they come.
  virtual int64_t every_steps() const { return 0; }
  // Called once a barrier, in ascending order of steps. None: everything stays.
  virtual std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) = 0;
  // State that decides all later answers together with the coming reports. A restored rule answers
  // as this one would, under a plan of another generation.
  virtual std::string State() const = 0;
  // InvalidArgument: it is no state of this rule's.
  virtual absl::Status Restore(absl::string_view state) = 0;
};

}  // namespace runnel
