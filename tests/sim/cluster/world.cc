#include "tests/sim/cluster/world.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "tests/sim/hash_compute.h"

namespace runnel {
namespace {

constexpr double kNsPerMs = 1e6;

InProcessFaults FaultsOf(const Scenario& scenario, uint64_t seed) {
  InProcessFaults faults;
  faults.seed = seed;
  faults.min_delay_ns = static_cast<int64_t>(scenario.latency_ms.least * kNsPerMs);
  faults.max_delay_ns = static_cast<int64_t>(scenario.latency_ms.most * kNsPerMs);
  faults.max_replica_ns = static_cast<int64_t>(scenario.replica_ms * kNsPerMs);
  faults.damage_one_in = scenario.damage_one_in;
  return faults;
}

SimulatedControlOptions ControlOf(const Scenario& scenario, uint64_t seed) {
  SimulatedControlOptions options;
  options.seed = seed;
  options.min_delay_ns = static_cast<int64_t>(scenario.latency_ms.least * kNsPerMs);
  options.max_delay_ns = static_cast<int64_t>(scenario.latency_ms.most * kNsPerMs);
  options.max_state_ns = static_cast<int64_t>(scenario.state_ms * kNsPerMs);
  return options;
}

}  // namespace

World::World(const Scenario& scenario_in, uint64_t seed_in, PlantedBug bug_in, bool keeps_log)
    : scenario(scenario_in),
      seed(seed_in),
      bug(bug_in),
      network(FaultsOf(scenario_in, seed_in)),
      control(&network, ControlOf(scenario_in, seed_in)),
      model(HashModel(scenario_in.layers)),
      zeros(ZeroState(model, 0, scenario_in.layers - 1).value()),
      keeps_log_(keeps_log) {
  FillZeros(zeros);
}

double World::Uniform(uint64_t stream) {
  return CounterRandom(seed, RandomPurpose::kTest, stream, 7).Uniform(draws_[stream]++);
}

int64_t World::DrawNs(const SpanOf& span, double unit_ns, uint64_t stream) {
  return static_cast<int64_t>((span.least + Uniform(stream) * (span.most - span.least)) * unit_ns);
}

uint32_t World::Below(uint32_t bound, uint64_t stream) {
  return CounterRandom(seed, RandomPurpose::kTest, stream, 7).Below(draws_[stream]++, bound);
}

void World::Record(absl::string_view text) {
  digest = HashOf(digest, static_cast<uint64_t>(now_ns()));
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  if (!keeps_log_) return;
  absl::StrAppend(&log, absl::StrFormat("%10.4f s  ", static_cast<double>(now_ns()) * 1e-9), text,
                  "\n");
}

void World::Violate(absl::string_view rule) {
  Record(absl::StrCat("BROKEN RULE: ", rule));
  if (violation.empty()) violation = std::string(rule);
}

}  // namespace runnel
