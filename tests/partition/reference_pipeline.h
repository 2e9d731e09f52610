#pragma once

// Slow and obvious pipelines, beside partition/simulator.h.

#include <cstdint>
#include <vector>

#include "partition/simulator.h"

namespace runnel {

// When every action ends: [stage][sequence].
struct ActionEnds {
  std::vector<std::vector<int64_t>> forward;
  std::vector<std::vector<int64_t>> input_gradient;
  std::vector<std::vector<int64_t>> weight_gradient;

  friend bool operator==(const ActionEnds&, const ActionEnds&) = default;
};

// By recurrence: an action begins when the one before it on its stage (StageActions) has ended and
// its input is here. No media, no drains, coding in no time.
ActionEnds EndsByRecurrence(const SimulatedPipeline& pipeline);

// By looking at everything nanosecond after nanosecond. Any pipeline without drains whose ways take
// at least 1 ns to send.
ActionEnds EndsByTicks(const SimulatedPipeline& pipeline);

// What Simulate reports.
ActionEnds EndsBySimulation(const SimulatedPipeline& pipeline);

}  // namespace runnel
