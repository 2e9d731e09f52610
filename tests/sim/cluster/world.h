#pragma once

// What all parts of one simulated history share: the network and its time, the draws, the record of
// what happens, and the first rule that was broken.

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/base/log.h"
#include "proto/base/random.h"
#include "tests/sim/cluster/hash_engine.h"
#include "tests/sim/cluster/planted_bugs.h"
#include "tests/sim/cluster/scenario.h"
#include "tests/support/in_process/simulated.h"
#include "tests/support/in_process/simulated_control.h"

namespace runnel {

// What an operating system says when somebody asks for a port.
enum class NodeState : uint8_t { kUp, kDown, kFrozen };

class World {
 public:
  World(const Scenario& scenario_in, uint64_t seed_in, PlantedBug bug_in, bool keeps_log);

  int64_t now_ns() const { return network.now_ns(); }
  // Draws are numbered by stream, so that one more in one place changes nothing elsewhere.
  double Uniform(uint64_t stream);
  int64_t DrawNs(const SpanOf& span, double unit_ns, uint64_t stream);
  uint32_t Below(uint32_t bound, uint64_t stream);

  // Part of the history; `text` begins with who says it.
  void Record(absl::string_view text);
  // A rule is broken. Only the first one counts.
  void Violate(absl::string_view rule);
  bool Has(PlantedBug which) const { return bug == which; }

  const Scenario& scenario;
  const uint64_t seed;
  const PlantedBug bug;
  SimulatedNetwork network;
  SimulatedControl control;
  ModelSpec model;
  ModelState zeros;  // of the whole model, with bytes
  HashEngines engines;
  std::map<std::string, NodeState> nodes;  // by name
  std::set<std::string> cut;               // nodes that nothing reaches
  std::string violation;                   // empty: none
  uint64_t digest = 0;                     // of the record
  std::string log;                         // the record, if it is kept
  int64_t losses = 0, recoveries = 0, moves = 0, commits = 0, relayed = 0;

 private:
  const bool keeps_log_;
  std::map<uint64_t, uint64_t> draws_;  // by stream
};

// What a process says.
class WorldLogger final : public Logger {
 public:
  WorldLogger(World* world, std::string who) : world_(world), who_(std::move(who)) {}
  void Log(Severity, absl::string_view line) override {
    world_->Record(absl::StrCat(who_, ": ", line));
  }

 private:
  World* const world_;
  const std::string who_;
};

// Streams of draws.
inline constexpr uint64_t kFaultDraws = 1, kPlanDraws = 2, kDiskDraws = 3, kBugDraws = 4,
                          kFirstWorkerDraws = 100;

}  // namespace runnel
