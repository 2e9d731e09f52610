#pragma once

// The production state machines (StageRuntime, LinkSession) over a virtual network and clock: lanes
// take seeded random times, connections break and come back, stages are lost and the run goes back
// to a barrier under another generation, and the whole run is a function of its seed.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "proto/base/plan/plan.h"
#include "proto/base/random.h"
#include "proto/base/training/batching.h"
#include "tests/support/in_process/simulated.h"
#include "worker/link_codecs.h"
#include "worker/stage/stage_compute.h"

namespace runnel {

struct SimulatedPipelineOptions {
  uint64_t seed = 1;
  Plan plan;
  Batching batching = Batching::Create(1, 1, 1, 1).value();
  std::vector<int64_t> barriers;       // sequences, ascending; the last one ends the run
  std::vector<StageCompute*> compute;  // by stage
  // Samples and labels of a micro-batch.
  std::function<Payload(const MicroBatch&)> samples;
  std::function<Payload(const MicroBatch&)> labels;
  // By stage; empty where all links are identity.
  std::vector<LinkCodecs*> codecs;
  std::function<Shape(int stage, int64_t samples)> output_shape;  // for codecs
  int64_t max_action_ns = 10'000'000;                             // an action takes up to this
  LinkShaping shaping;
  int frozen_front = 0;  // layers, as in StageRuntimeOptions
  bool clips = false;    // likewise
  // Breaks the connections of a random stage this often on average; 0: never.
  int64_t break_every_ns = 0;
  // Loses a stage this often on average, kMostLosses times at most; 0: never. The run goes back to
  // the last cut that was kept, which is at some of the barriers.
  static constexpr int64_t kMostLosses = 20;
  int64_t lose_every_ns = 0;
  std::function<void()> keep;     // all stages stand at a barrier: their states are a cut
  std::function<void()> go_back;  // makes compute and codecs anew, from the last cut
};

struct SimulatedPipelineResult {
  int64_t virtual_ns = 0;
  int64_t breaks = 0;
  int64_t losses = 0;
  int64_t frames_resent = 0;
  // What each stage did, in order: "F0/0 F1/0 I0 W0 ...", with the version of the weights.
  std::vector<std::string> actions;
};

// Internal if the pipeline gets stuck or a stage refuses an event.
absl::StatusOr<SimulatedPipelineResult> RunSimulated(const SimulatedPipelineOptions& options);

}  // namespace runnel
