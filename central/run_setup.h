#pragma once

// From what the user asked for to what a run needs: looks everything up in its table, loads the
// data, and checks that model, data and settings fit, before any process is started.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/coordinator.h"
#include "central/data/dataset.h"
#include "central/run_settings.h"
#include "partition/policy.h"
#include "partition/schedule.h"
#include "proto/base/model_spec.h"
#include "proto/base/training.h"

namespace runnel {

// What `plan --what-if` supposes of the link between two devices, both ways.
struct AssumedLink {
  int from = 0;  // device numbers
  int to = 0;
  double mbps = 0;
};

struct RunSetup {
  RunSettings settings;  // defaults filled in
  ModelSpec model;
  NumberFormat format;  // of the recipe
  std::string note;     // what the user gave and the recipe does not look at; empty: nothing
  const PolicyRow* policy = nullptr;
  const ScheduleRow* schedule = nullptr;
  DatasetSplits data;
  TrainingSettings training;
  BarrierRule barriers;
  int64_t total_steps = 0;  // of all epochs
  int64_t stop_step = 0;    // total_steps, or --max-batches if that is less
  int workers = 1;          // local and dialling ones
  bool plain_loop = false;
  std::vector<AssumedLink> assumed_links;  // instead of --link-mbps
};

// Errors name the flag or file: unknown names (with what there is), values out of range, a model
// that the recipe cannot train (with layer and operator), data that
// does not load or does not fit the model, more stages than layers, caps of the wrong number.
absl::StatusOr<RunSetup> SetUpRun(RunSettings settings);

// The plan that the setup's policy and schedule make for these devices, by number and in pipeline
// order. layer_seconds: by device number; empty: nothing was measured.
absl::StatusOr<Plan> PlanFor(const RunSetup& setup, Generation generation,
                             const std::vector<int>& devices,
                             const std::vector<std::vector<double>>& layer_seconds);

// Whether the run may move layers at barriers.
bool Replans(const RunSetup& setup);

// Seconds that the pipeline of `plan` needs for a micro-batch, by simulation.
absl::StatusOr<double> PredictPeriod(const RunSetup& setup, const Plan& plan,
                                     const std::vector<std::vector<double>>& layer_seconds);

}  // namespace runnel
