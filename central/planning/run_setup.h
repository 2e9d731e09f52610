#pragma once

// From what the user asked for to what a run needs: looks everything up in its table, loads the
// data, and checks that model, data and settings fit, before any process is started.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/data/dataset.h"
#include "central/planning/bandwidth_bits.h"
#include "central/planning/link_rates.h"
#include "central/records/summary.h"
#include "central/settings/run_settings.h"
#include "partition/policy.h"
#include "partition/schedule.h"
#include "proto/base/device_times.h"
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
  // --bits bandwidth: what this host takes to code a byte of an FP32 tensor (MeasureCodecs).
  double codec_seconds_per_byte = 0;
};

// Errors name the flag or file: unknown names (with what there is), values out of range, a model
// that the recipe cannot train (with layer and operator), data that
// does not load or does not fit the model, more stages than layers, caps of the wrong number.
absl::StatusOr<RunSetup> SetUpRun(RunSettings settings);

// What is known of devices and links beside the times of layers.
struct Conditions {
  LinkRates rates = {};  // what the links were measured to carry, instead of what the user gave
  // By device number: what its computing thread gets of a processor; empty: all of one.
  std::vector<double> processor_shares = {};
  // By device number: of all layers when the shares were measured; empty: the layers' of now.
  // (Later corrections are for computation: what the transport takes then is not known.)
  std::vector<double> profiled_seconds = {};
};

// The plan that the setup's policy and schedule make for these devices, by number and in pipeline
// order. times: by device number; empty: nothing was measured.
absl::StatusOr<Plan> PlanFor(const RunSetup& setup, Generation generation,
                             const std::vector<int>& devices, const std::vector<DeviceTimes>& times,
                             const Conditions& conditions = {});

// Whether devices are profiled before the first plan: for the policy, or for --bits bandwidth.
bool NeedsProfile(const RunSetup& setup);

// Whether the run may have another plan from a barrier on.
bool Replans(const RunSetup& setup);
// Whether layers may move then; without, only the bits follow the links.
bool MovesLayers(const RunSetup& setup);

// --bits bandwidth: the plan with the codecs that its links have time for (FitBits).
absl::StatusOr<Plan> RefitBits(const RunSetup& setup, const Plan& plan,
                               const std::vector<DeviceTimes>& times,
                               const Conditions& conditions = {});
// What a plan loses by its codecs (CodingError); 0 if they cannot be read.
double CodingErrorOf(const RunSetup& setup, const Plan& plan);

// What the links of `plan` were taken for when it was made with `rates`.
PlanBandwidth BandwidthOf(const RunSetup& setup, const Plan& plan, const LinkRates& rates);
// A line for people: "links taken for 4.02 Mbps down and 3.98 up (measured)"; empty without links.
std::string BandwidthText(const PlanBandwidth& bandwidth);

// Seconds that the pipeline of `plan` needs for a micro-batch, by simulation.
absl::StatusOr<double> PredictPeriod(const RunSetup& setup, const Plan& plan,
                                     const std::vector<DeviceTimes>& times,
                                     const Conditions& conditions = {});

}  // namespace runnel
