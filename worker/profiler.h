#pragma once

// Measures what layers cost on this device: the figures that the planner cuts by and that the
// latency predictor learns from (AccEPT 3.2: the execution time of sub-models).

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/recipe.h"
#include "proto/base/clock.h"
#include "proto/base/layer_range.h"
#include "proto/base/model_spec.h"

namespace runnel {

struct ProfileOptions {
  int64_t samples = 0;             // of one micro-batch
  int64_t repetitions = 0;         // measurements of each range, 1..1000
  std::vector<LayerRange> ranges;  // empty: each layer by itself
  // By range: micro-batches whose forwards are ahead of the backwards, the backward's own included,
  // as in a stage with this cap; at least 1. What a stage keeps of several does not stay in caches
  // as that of one does, and tensors at its ends come from elsewhere: they take turns in memory.
  // Empty: one each, and the same tensors again and again (the shipped profiles are measured so).
  std::vector<int64_t> in_flight;
  // Between a forward and a backward others use the caches: what a range's tensors left there is
  // gone. So it is where a stage shares its processor. Only with in_flight.
  bool shared_caches = false;
  // One measurement repeats the work until it took this long and is the mean of that: longer than
  // what a scheduler or a processor quota does in turns. 0: the work once.
  double burst_ms = 0;
  // Above 0: times are those of a processor on which a step of MeasureClockStepNs takes this long,
  // by a probe between the slices of each measurement. 0: as the wall clock says.
  double nominal_step_ns = 0;
};

struct RangeTime {
  double seconds = 0;  // median of the measurements
  double spread = 0;   // distance between their quartiles over the median
  // The same median of the calling thread's processor time, whatever the clock of ProfileOptions.
  double processor_seconds = 0;
  // Of all measurements together: what they took by the wall clock, and of processor time.
  double all_wall_seconds = 0;
  double all_processor_seconds = 0;
};

// Time of forward, input-gradient, weight-gradient and update by range: each range as a stage of
// its own with random weights, on random values. The ranges are measured in turns, so that a slow
// moment of the machine meets one measurement of many ranges and not all of one; what a range needs
// is warmed up before each of its turns. InvalidArgument names the number that is out of range;
// further errors as CompileStage and Backend::Prepare.
absl::StatusOr<std::vector<RangeTime>> ProfileRanges(const ModelSpec& model, const Recipe& recipe,
                                                     Backend& backend,
                                                     const ProfileOptions& options,
                                                     const Clock& clock);

}  // namespace runnel
