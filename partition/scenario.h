#pragma once

// A scenario: hosts, the links between them and what is trained on them. The simulator works on it,
// and the laboratory (deploy/lab) builds the same hosts out of network namespaces and CPU quotas.
//
// As a file it is one JSON object (files of the release: deploy/lab/scenarios/):
//
//   {
//     "name": "three-pis",                     in tables and file names
//     "about": "one line for people",
//     "training": {
//       "model": "har_cnn", "dataset": "ucihar",
//       "batch_size": 64, "micro_batches": 1,  samples, and parts, of one optimizer step
//       "schedule": "async_1f1b",
//       "epochs": 200, "steps_per_epoch": 50,
//       "barrier_every": 100                   steps; 0: the pipeline never drains
//     },
//     "duplex": "full",                        or "half": both ways of a link share its bandwidth
//     "hosts": [                               the first one is central and holds the data
//       {"name": "pi-0",
//        "profile": "pi",                      its layer times: one of "profiles"
//        "speed": 1.0,                         divides the profile's times
//        "threads": 1,                         compute threads of its worker
//        "cpu_quota": 0.5,                     cores that it may use, 0: no limit. For the
//                                              laboratory; what it costs is in "speed" already
//        "memory_limit_mb": 0}                 what a stage may take, 2^20 bytes; 0: no limit
//     ],
//     "links": [                               later entries win over earlier ones
//       {"from": "*", "to": "*",               a pair of hosts, "*": any
//        "down_mbps": 4, "up_mbps": 4,         10^6 bits a second from -> to, and back; 0: no limit
//        "delay_ms": 0}                        each way, added to every frame
//     ],
//     "profiles": [
//       {"name": "pi",
//        "about": "what was measured, on what",
//        "batch_size": 64,                     samples of the micro-batch that was timed
//        "layer_ms": [1.0, ...],               forward, backward and update of each layer
//        "forward_share": 0.333,               of that time
//        "input_gradient_share": 0.333,        the rest is weight-gradient and update
//        "codec_gb_per_s": 5}                  FP32 bytes that a codec encodes or decodes, 10^9 a
//                                              second; 0: in no time. "identity" takes none
//     ],
//     "published": {                           optional: a table to compare with
//       "about": "AccEPT, Table 5",
//       "steps": 46900,                        that its times are for
//       "fit_mbps": 4,                         the column on which host speeds are fitted
//       "mbps": [0.25, 0.5, 1, 2, 4],
//       "same_speed": [["gold-0", "gold-1"]],  hosts of one kind: one speed is fitted for them
//       "minutes": {"ftpipehd": [...], "compression": [...], "predictor": [...], "accept": [...]}
//     }
//   }
//
// A layer's time is proportional to the samples of the micro-batch. Every key must be there except
// "published", and no other key may.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "partition/pipeline_model.h"

namespace runnel {

struct ScenarioTraining {
  std::string model;
  std::string dataset;
  int64_t batch_size = 1;
  int64_t micro_batches = 1;
  std::string schedule;
  int64_t epochs = 1;
  int64_t steps_per_epoch = 1;
  int64_t barrier_every = 0;
};

struct ScenarioHost {
  std::string name;
  std::string profile;
  double speed = 1;
  int64_t threads = 1;
  double cpu_quota = 0;
  int64_t memory_limit_mb = 0;
};

struct ScenarioLink {
  std::string from;
  std::string to;
  LinkRate down;
  LinkRate up;
  double delay_ms = 0;
};

struct ScenarioProfile {
  std::string name;
  std::string about;
  int64_t batch_size = 1;
  std::vector<double> layer_ms;
  double forward_share = 1.0 / 3;
  double input_gradient_share = 1.0 / 3;
  double codec_gb_per_s = 0;
};

// Times of another system on these hosts.
struct PublishedTimes {
  std::string about;
  int64_t steps = 0;  // 0: there is no such table
  double fit_mbps = 0;
  std::vector<double> mbps;
  std::vector<std::vector<std::string>> same_speed;
  std::vector<std::pair<std::string, std::vector<double>>> minutes;  // by method
};

struct Scenario {
  std::string name;
  std::string about;
  ScenarioTraining training;
  bool half_duplex = false;
  std::vector<ScenarioHost> hosts;
  std::vector<ScenarioLink> links;
  std::vector<ScenarioProfile> profiles;
  PublishedTimes published;
};

// InvalidArgument names the field, its value and what would be right: no host, a name twice, a
// profile or host that is not there, times and speeds that are not positive and finite, counts
// below 1, shares outside (0, 1), ...
absl::Status CheckScenario(const Scenario& scenario);

// What a frame from host `from` to host `to` meets.
LinkSpeed SpeedBetween(const Scenario& scenario, int from, int to);

}  // namespace runnel
