#pragma once

// Measures the execution time of ranges of layers on this device, for the planner and for the
// latency predictor (AccEPT 3.2: the execution time of sub-models).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/recipe.h"
#include "proto/base/clock.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

struct ProfileOptions {
  int64_t samples = 0;             // samples of one micro-batch
  int64_t repetitions = 0;         // measurements of each range, 1..1000
  std::vector<LayerRange> ranges;  // empty: each layer by itself
  // Micro-batches in flight by range, as in a stage with this cap (at least 1). Inputs and
  // gradients then rotate through more memory than the caches hold, as in a pipeline. Empty: one
  // micro-batch in flight and the same tensors in every run (the shipped profiles were measured
  // so).
  std::vector<int64_t> in_flight;
  // Evict the caches between a forward and a backward, as a neighbour on the same processor does.
  // Only with in_flight.
  bool shared_caches = false;
  // Duration of one measurement, which is the mean over its runs. Must be longer than a period of
  // the scheduler or of a processor quota. 0: one run.
  double burst_ms = 0;
  // Above 0: times are scaled to a processor on which a step of MeasureClockStepNs takes this long,
  // by probes of the clock within each measurement. 0: wall-clock times.
  double nominal_step_ns = 0;
  // A range is not measured again once its measurements have taken so long together, and is not
  // warmed up again before each of them if a few runs fill a burst. A range that takes several
  // bursts is measured on a quarter of the samples, and its time is multiplied by 4.
  // 0: all repetitions, all samples.
  double enough_ms = 0;
};

// The backend that ranges were measured on.
struct MeasuredOn {
  std::string backend;  // name for MakeBackend: "cpu", "cpu,opencl"
  std::string why;      // reason, where nobody named it: a line for people
  // Whether this device always takes it; false: a part of the device is lost for now.
  bool is_usual = true;
  std::string numerics_class = {};
};

struct RangeTime {
  double seconds = 0;  // median of the measurements
  double spread = 0;   // distance between their quartiles over the median
  // Median of the calling thread's processor time; not scaled by nominal_step_ns.
  double processor_seconds = 0;
  // Sums over all measurements.
  double all_wall_seconds = 0;
  double all_processor_seconds = 0;
  // Share of forward and input-gradient in the time of all runs, [0, 1].
  double forward_share = 0;
  double input_gradient_share = 0;
};

// [range]: time of forward, input-gradient, weight-gradient and update of one micro-batch. Each
// range runs as a stage of its own with random weights on random values. Ranges are measured in
// turns, so that a slow moment of the machine spoils one measurement of many ranges and not all of
// one range; a run that is not counted precedes each turn. InvalidArgument names the number that is
// out of range; further errors as CompileStage and Backend::Prepare. on_progress: told after each
// measurement how much is done, [0, 1]; may be null.
absl::StatusOr<std::vector<RangeTime>> ProfileRanges(
    const ModelSpec& model, const Recipe& recipe, Backend& backend, const ProfileOptions& options,
    const Clock& clock, const std::function<void(double share)>& on_progress = nullptr);

}  // namespace runnel
