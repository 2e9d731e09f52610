#include "partition/scenario.h"

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/simulator.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("scenario: ", parts...));
}

bool IsPositive(double value) { return std::isfinite(value) && value > 0; }
bool IsLimit(double value) { return std::isfinite(value) && value >= 0; }

constexpr int64_t kMaxCount = 1'000'000'000;
constexpr size_t kMaxHosts = 1024;

absl::Status CheckTraining(const ScenarioTraining& training) {
  const std::pair<const char*, int64_t> counts[] = {{"batch_size", training.batch_size},
                                                    {"micro_batches", training.micro_batches},
                                                    {"epochs", training.epochs},
                                                    {"steps_per_epoch", training.steps_per_epoch}};
  for (const auto& [name, value] : counts) {
    if (value < 1 || value > kMaxCount) return Wrong(name, " ", value, " must be 1..", kMaxCount);
  }
  if (training.barrier_every < 0 || training.barrier_every > kMaxCount) {
    return Wrong("barrier_every ", training.barrier_every, " must be 0 (never) to ", kMaxCount);
  }
  if (training.micro_batches > training.batch_size) {
    return Wrong(training.micro_batches, " micro-batches of ", training.batch_size, " samples");
  }
  return absl::OkStatus();
}

absl::Status CheckProfile(const ScenarioProfile& profile) {
  if (profile.batch_size < 1) return Wrong("profile ", profile.name, ": batch_size below 1");
  if (profile.layer_ms.empty() == profile.device_profile.empty())
    return Wrong("profile ", profile.name, ": needs either layer_ms or device_profile");
  for (double ms : profile.layer_ms) {
    if (!IsLimit(ms)) return Wrong("profile ", profile.name, ": ", ms, " is no layer time");
  }
  const double forward = profile.forward_share;
  const double input_gradient = profile.input_gradient_share;
  if (!IsPositive(forward) || !IsLimit(input_gradient) || forward + input_gradient > 1) {
    return Wrong("profile ", profile.name, ": shares ", forward, " and ", input_gradient,
                 " must be at least 0 and make at most 1");
  }
  if (!IsLimit(profile.codec_gb_per_s)) {
    return Wrong("profile ", profile.name, ": codec_gb_per_s ", profile.codec_gb_per_s,
                 " must be at least 0 (0: coding takes no time)");
  }
  return absl::OkStatus();
}

absl::Status CheckHost(const ScenarioHost& host, const std::set<std::string>& profiles) {
  if (host.name.empty() || host.name == "*") return Wrong("host '", host.name, "': needs a name");
  if (profiles.count(host.profile) == 0) {
    return Wrong("host ", host.name, ": profile '", host.profile, "' is not there; there are ",
                 absl::StrJoin(profiles, ", "));
  }
  if (!IsPositive(host.speed)) return Wrong("host ", host.name, ": speed must be above 0");
  if (host.threads < 1) return Wrong("host ", host.name, ": threads must be at least 1");
  if (!IsLimit(host.cpu_quota)) return Wrong("host ", host.name, ": cpu_quota must be 0 or cores");
  if (host.memory_limit_mb < 0 || host.memory_limit_mb > (int64_t{1} << 40)) {
    return Wrong("host ", host.name, ": memory_limit_mb ", host.memory_limit_mb,
                 " must be 0 (no limit) or a number of megabytes");
  }
  return absl::OkStatus();
}

absl::Status CheckLink(const ScenarioLink& link, const std::set<std::string>& hosts) {
  for (const std::string& end : {link.from, link.to}) {
    if (end != "*" && hosts.count(end) == 0) {
      return Wrong("link ", link.from, " to ", link.to, ": host '", end, "' is not there");
    }
  }
  if (!IsLimit(link.down.mbps()) || !IsLimit(link.up.mbps()) || !IsLimit(link.delay_ms)) {
    return Wrong("link ", link.from, " to ", link.to,
                 ": bandwidths and delay must be finite and at least 0");
  }
  return absl::OkStatus();
}

absl::Status CheckMedium(const ScenarioMedium& medium, const std::set<std::string>& hosts) {
  if (medium.name.empty()) return Wrong("medium '': needs a name");
  if (medium.hosts.empty())
    return Wrong("medium ", medium.name, ": no hosts; \"*\" is all of them");
  for (const std::string& host : medium.hosts) {
    if (host != "*" && hosts.count(host) == 0) {
      return Wrong("medium ", medium.name, ": host '", host, "' is not there");
    }
  }
  if (!IsPositive(medium.rate.mbps()) || !IsLimit(medium.delay_ms)) {
    return Wrong("medium ", medium.name, ": mbps must be above 0 and delay_ms at least 0");
  }
  return absl::OkStatus();
}

absl::Status CheckMachines(const std::vector<ScenarioMachine>& machines,
                           const std::set<std::string>& hosts) {
  std::set<std::string> placed;
  for (const ScenarioMachine& machine : machines) {
    if (machine.name.empty()) return Wrong("machine '': needs a name");
    if (!IsPositive(machine.processors) || machine.processors < kLeastProcessors) {
      return Wrong("machine ", machine.name, ": processors ", machine.processors,
                   " must be at least ", kLeastProcessors);
    }
    for (const std::string& host : machine.hosts) {
      if (hosts.count(host) == 0)
        return Wrong("machine ", machine.name, ": host '", host, "' is not there");
      if (!placed.insert(host).second)
        return Wrong("machine ", machine.name, ": host ", host, " is on a machine already");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPublished(const PublishedTimes& published, const std::set<std::string>& hosts) {
  if (published.steps < 1) return Wrong("published: steps must be at least 1");
  bool fitted = false;
  for (double mbps : published.mbps) {
    if (!IsPositive(mbps)) return Wrong("published: ", mbps, " Mbit/s is no bandwidth");
    fitted = fitted || mbps == published.fit_mbps;
  }
  if (!fitted) return Wrong("published: fit_mbps ", published.fit_mbps, " is not one of mbps");
  for (const auto& [method, minutes] : published.minutes) {
    if (minutes.size() != published.mbps.size()) {
      return Wrong("published: ", method, " has ", minutes.size(), " times for ",
                   published.mbps.size(), " bandwidths");
    }
    for (double value : minutes) {
      if (!IsPositive(value)) return Wrong("published: ", method, ": ", value, " is no time");
    }
  }
  for (const std::vector<std::string>& group : published.same_speed) {
    for (const std::string& name : group) {
      if (hosts.count(name) == 0) return Wrong("published: host '", name, "' is not there");
    }
  }
  return absl::OkStatus();
}

}  // namespace

const char kScenarioFormat[] = R"(
A scenario file is one JSON object (deploy/lab/scenarios has some):
{
  "name": "three-pis",                     in tables and file names
  "about": "one line for people",
  "training": {
    "model": "har_cnn", "dataset": "ucihar",
    "batch_size": 64, "micro_batches": 1,  samples, and parts, of one optimizer step
    "schedule": "async_1f1b",
    "epochs": 200, "steps_per_epoch": 50,
    "barrier_every": 100                   steps; 0: the pipeline never drains
  },
  "duplex": "full",                        or "half": both ways of a link share its bandwidth
  "hosts": [                               the first one is central and holds the data
    {"name": "pi-0",
     "profile": "pi",                      its layer times: one of "profiles"
     "speed": 1.0,                         divides the profile's times
     "threads": 1,                         compute threads of its worker
     "cpu_quota": 0.5,                     cores that it may use, 0: no limit. For the laboratory;
                                           what the quota costs is in "speed" already
     "memory_limit_mb": 0,                 what a stage may take, 2^20 bytes; 0: no limit
     "backend": "cpu:avx2"}                optional, for the laboratory: its worker's --backend; what
                                           it costs is in "profile" already
  ],
  "links": [                               later entries win over earlier ones
    {"from": "*", "to": "*",               a pair of hosts, "*": any
     "down_mbps": 4, "up_mbps": 4,         10^6 bits a second from -> to, and back; 0: no limit
     "delay_ms": 0}                        each way, added to every frame
  ],
  "media": [                               optional: radios; their hosts reach each other over them,
                                           whatever "links" says
    {"name": "wifi", "hosts": ["*"],
     "mbps": 20,                           of the air: one frame at a time, whoever sends
     "delay_ms": 2,                        each way, added to every frame
     "access_point": true}                 each frame is on the air twice
  ],
  "machines": [                            optional: hosts that are workers on one machine, and share
    {"name": "laptop",                     its processors; their profiles are those of a worker alone
     "hosts": ["pi-0", "pi-1"],
     "processors": 2}
  ],
  "changes": [                             optional, for the laboratory: links while it trains
    {"seconds": 60,                        after the first plan, what a link then is
     "from": "*", "to": "pi-2", "down_mbps": 1, "up_mbps": 1, "delay_ms": 0}
  ],
  "profiles": [
    {"name": "pi",
     "about": "what was measured, on what",
     "batch_size": 64,                     samples of the micro-batch that was timed
     "layer_ms": [1.0, ...],               forward, backward and update of each layer
     "forward_share": 0.333,               of that time
     "input_gradient_share": 0.333,        the rest is weight-gradient and update
     "codec_gb_per_s": 5},                 FP32 bytes that a codec encodes or decodes, 10^9 a
                                           second; 0: in no time. "identity" takes none
    {"name": "torch", "about": "...",
     "device_profile":                     instead of "batch_size" and "layer_ms": a file as
       "unseen/u_t2_torch.profile",        runnel-lab profile writes it, beside the scenario file
                                           or in --predictor-profiles. Only of hosts with such a
                                           profile can layer times be predicted (policy accept)
     "forward_share": 0.333, "input_gradient_share": 0.333, "codec_gb_per_s": 5}
  ],
  "published": {                           optional: a table to compare with
    "about": "AccEPT, Table 5",
    "steps": 46900,                        that its times are for
    "fit_mbps": 4,                         the column on which host speeds are fitted
    "mbps": [0.25, 0.5, 1, 2, 4],
    "same_speed": [["gold-0", "gold-1"]],  hosts of one kind: one speed is fitted for them
    "minutes": {"ftpipehd": [...], "compression": [...], "predictor": [...], "accept": [...]}
                                           by the method that is compared with them
  }
}
A layer's time is proportional to the samples of the micro-batch. Every key must be there except the
optional ones, and no other key may. Speed-ups, and policies that are not in the published table, are
shown only if the other times of ftpipehd, and of accept or measured_compression, come out with a
median error of at most 15 %.)";

absl::Status CheckScenario(const Scenario& scenario) {
  RUNNEL_RETURN_IF_ERROR(CheckTraining(scenario.training));
  std::set<std::string> profiles;
  size_t layers = 0;
  for (const ScenarioProfile& profile : scenario.profiles) {
    RUNNEL_RETURN_IF_ERROR(CheckProfile(profile));
    if (!profiles.insert(profile.name).second) {
      return Wrong("profile ", profile.name, " is there twice");
    }
    if (profile.layer_ms.empty()) continue;
    if (layers != 0 && profile.layer_ms.size() != layers) {
      return Wrong("profile ", profile.name, " has ", profile.layer_ms.size(),
                   " layers, another one ", layers);
    }
    layers = profile.layer_ms.size();
  }
  std::set<std::string> hosts;
  for (const ScenarioHost& host : scenario.hosts) {
    RUNNEL_RETURN_IF_ERROR(CheckHost(host, profiles));
    if (!hosts.insert(host.name).second) return Wrong("host ", host.name, " is there twice");
  }
  if (hosts.empty() || hosts.size() > kMaxHosts) {
    return Wrong(hosts.size(), " hosts; there must be 1..", kMaxHosts);
  }
  for (const ScenarioLink& link : scenario.links) RUNNEL_RETURN_IF_ERROR(CheckLink(link, hosts));
  for (const ScenarioMedium& medium : scenario.media) {
    RUNNEL_RETURN_IF_ERROR(CheckMedium(medium, hosts));
  }
  RUNNEL_RETURN_IF_ERROR(CheckMachines(scenario.machines, hosts));
  const bool has_table = scenario.published.steps != 0 || !scenario.published.minutes.empty();
  return has_table ? CheckPublished(scenario.published, hosts) : absl::OkStatus();
}

std::vector<int> MachinesOf(const Scenario& scenario) {
  std::map<std::string, int> machine_of;
  for (size_t i = 0; i < scenario.machines.size(); ++i) {
    for (const std::string& host : scenario.machines[i].hosts)
      machine_of[host] = static_cast<int>(i);
  }
  std::vector<int> machines;
  for (const ScenarioHost& host : scenario.hosts) {
    const auto found = machine_of.find(host.name);
    machines.push_back(found == machine_of.end() ? -1 : found->second);
  }
  return machines;
}

std::vector<std::vector<LinkSpeed>> SpeedsBetween(const Scenario& scenario) {
  const int hosts = static_cast<int>(scenario.hosts.size());
  std::vector<int> everybody(hosts);
  std::iota(everybody.begin(), everybody.end(), 0);
  std::map<std::string, int> numbers;
  for (int i = 0; i < hosts; ++i) numbers[scenario.hosts[i].name] = i;
  const auto fitting = [&](const std::string& end) {
    return end == "*" ? everybody : std::vector<int>{numbers.at(end)};
  };
  std::vector<std::vector<LinkSpeed>> speeds(hosts, std::vector<LinkSpeed>(hosts));
  for (const ScenarioLink& link : scenario.links) {
    const bool is_any = link.from == link.to;
    const double delay_seconds = link.delay_ms * 1e-3;
    for (const int from : fitting(link.from)) {
      for (const int to : fitting(link.to)) {
        // Between "*" and "*" the order of the hosts decides which direction is down.
        if (from == to || (is_any && from > to)) continue;
        speeds[to][from] = {link.up, delay_seconds};
        speeds[from][to] = {link.down, delay_seconds};
      }
    }
  }
  int media = 0;
  for (int i = 0; scenario.half_duplex && i < hosts; ++i) {
    for (int j = i + 1; j < hosts; ++j) speeds[i][j].medium = speeds[j][i].medium = media++;
  }
  for (const ScenarioMedium& medium : scenario.media) {
    std::vector<int> on_it;
    for (const std::string& name : medium.hosts) {
      for (const int host : fitting(name)) on_it.push_back(host);
    }
    for (const int from : on_it) {
      for (const int to : on_it) {
        if (from == to) continue;
        speeds[from][to] = {medium.rate, medium.delay_ms * 1e-3, media,
                            medium.access_point ? 2 : 1};
      }
    }
    ++media;
  }
  return speeds;
}

}  // namespace runnel
