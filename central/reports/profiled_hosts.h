#pragma once

// Hosts of a scenario that are measured devices: a scenario's profile may name the file of a device
// profile (predictor/profiles/profile_file.h). How long such hosts take, as measured, and as a
// latency predictor that never saw them says that they take.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "partition/scenario.h"
#include "predictor/run/predictor_row.h"
#include "predictor/run/run_predictor.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/device_times.h"

namespace runnel {

// Where profiles are, and who predicts.
struct ProfileSource {
  // Relative names of device profiles start here, and *.profile and the networks of here are what a
  // predictor learned from. Empty: there is none.
  std::string folder;
  std::string predictor = "accept";  // row of the table of predictors
};

// Every range of layers of a device, as measured.
DeviceTimes MeasuredTimesOf(const KnownDevice& device);
// The same as the row predicts them after it has measured its ranges, cold: nothing was reported.
// Errors as PredictorRow::fit.
absl::StatusOr<DeviceTimes> PredictedTimesOf(const PredictorRow& row,
                                             const PredictorKnowledge& knowledge,
                                             const KnownDevice& device);

// By host: times of a micro-batch of the scenario's training at speed 1, as measured or as its
// layer_ms say. Errors name the profile: a file that is not there or damaged, or without the model.
absl::StatusOr<std::vector<DeviceTimes>> MeasuredHosts(const Scenario& scenario,
                                                       const ModelSpec& model,
                                                       const ProfileSource& source);
// Whether every host has a device profile: what PredictedHosts needs.
bool HaveDeviceProfiles(const Scenario& scenario);
// By host, the same as they are predicted from the row's own ranges. InvalidArgument: a host has no
// device profile, the predictor learned from a host's profile, or lacks something (as LoadNetwork
// and CheckKnowledge).
absl::StatusOr<std::vector<DeviceTimes>> PredictedHosts(const Scenario& scenario,
                                                        const ModelSpec& model,
                                                        const ProfileSource& source);

// The profile of a host of a scenario that passed CheckScenario.
const ScenarioProfile& ProfileOf(const Scenario& scenario, const ScenarioHost& host);
// Samples of a micro-batch: the largest part of a step.
int64_t MicroBatchSize(const ScenarioTraining& training);

}  // namespace runnel
