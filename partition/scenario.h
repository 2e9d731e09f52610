#pragma once

// A scenario: hosts, links between them, and the training. The simulator works on it, and the
// laboratory (deploy/lab) builds the same hosts from network namespaces and CPU quotas.
// As a file it is one JSON object; kScenarioFormat describes it.

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
  std::string backend = {};  // backend of its worker in the laboratory; empty: the best one
};

struct ScenarioLink {
  std::string from;
  std::string to;
  LinkRate down;
  LinkRate up;
  double delay_ms = 0;
};

// A medium that hosts share, whatever the links allow: one frame at a time from all of them.
struct ScenarioMedium {
  std::string name;
  std::vector<std::string> hosts;  // "*": all
  LinkRate rate;
  double delay_ms = 0;
  bool access_point = false;  // each frame is on the air twice
};

// Several hosts are workers on one machine: they share its processors.
struct ScenarioMachine {
  std::string name;
  std::vector<std::string> hosts;  // each on one machine at most
  double processors = 1;
};

struct ScenarioProfile {
  std::string name;
  std::string about;
  // Either the file of a device profile, or layer_ms.
  std::string device_profile;
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
  std::vector<ScenarioMedium> media;
  std::vector<ScenarioMachine> machines = {};
  std::vector<ScenarioProfile> profiles;
  PublishedTimes published;
};

// An example of a scenario file with what each key means, for people: `runnel-lab simulate
// --help` prints it.
extern const char kScenarioFormat[];

// InvalidArgument names the field, its value and what would be right: no host, a name twice, a
// profile or host that is not there, times and speeds that are not positive and finite, counts
// below 1, shares outside (0, 1), ...
absl::Status CheckScenario(const Scenario& scenario);

// Speeds of frames from host `from` to host `to`: [from][to]. On half duplex every pair of hosts
// has a medium of its own. The scenario must have passed CheckScenario.
std::vector<std::vector<LinkSpeed>> SpeedsBetween(const Scenario& scenario);

// By host: position in Scenario::machines of the machine that it is on; -1: of its own.
std::vector<int> MachinesOf(const Scenario& scenario);

}  // namespace runnel
