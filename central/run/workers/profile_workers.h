#pragma once

// Asks live workers how long sub-models take on them: the training data of the latency predictor
// (AccEPT 3.2).

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "central/run/workers/local_workers.h"
#include "predictor/profiles/profile_file.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/base/model/model_spec.h"
#include "proto/transport/control/control_channel.h"

namespace runnel {

// What is measured of one model.
struct ProfiledModel {
  ModelSpec model;
  int64_t batch = 0;  // samples of a micro-batch
  std::vector<LayerRange> ranges;
};

struct ProfileJob {
  std::vector<ProfiledModel> models;
  std::string recipe = "fp32";
  std::string backend = "auto";
  int64_t repetitions = 7;
  double burst_ms = 10;
  double nominal_step_ns = 0;           // 0: wall time; else as ProfileRequest says
  int64_t local_workers = 1;            // started here
  int64_t workers = 0;                  // that dial in
  int64_t worker_threads = 1;           // of a local one
  BackendOptions backend_options = {};  // likewise
  std::string listen = "127.0.0.1:0";
  int64_t worker_timeout_s = 60;
};

// One device's answer.
struct ProfiledDevice {
  std::string name;
  std::string numerics_class;
  std::vector<SubModelTime> times;  // seconds_1, spread_1; in the order of the job
};

// Borrowed; all outlive the call.
struct ProfileParts {
  ControlTransport* control = nullptr;
  const Clock* clock = nullptr;
  Logger* logger = nullptr;
  Enrolment enrolment = {};
};

// Starts and accepts workers as a run does, measures one device after the other (those on one host
// would take the processor from each other) and releases them. On the calling thread, which must
// live as long as the process. InvalidArgument: the workers cannot train that; DeadlineExceeded:
// not all joined; Unavailable: a worker is gone.
absl::StatusOr<std::vector<ProfiledDevice>> ProfileWorkers(const ProfileJob& job,
                                                           const ProfileParts& parts);

}  // namespace runnel
