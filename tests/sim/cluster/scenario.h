#pragma once

// What a simulation of the whole cluster is about: devices, links, the schedule, the barriers and
// the faults. A text file; README.md lists its lines.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// Drawn uniformly.
struct SpanOf {
  double least = 0;
  double most = 0;
};

enum class FaultKind : uint8_t {
  kCrash,      // the process ends (SIGKILL), and is started again after for_s
  kFreeze,     // it is stopped (SIGSTOP) for for_s
  kPartition,  // nothing passes to the device and from it for for_s
  kBreak,      // its connections break, and may be dialled again at once
  kDrain,      // it is told to leave (SIGTERM), and started again after for_s
  kDiskFull,   // central's disk takes nothing for for_s
  kDiskRot,    // the newest of several check-points cannot be read any more
  kCutLink,    // nothing passes between two devices, of which the target is one, for for_s
};

struct FaultSpec {
  FaultKind kind = FaultKind::kCrash;
  std::string target =
      "worker";             // worker (one that dials in), local, central, any (worker or local)
  SpanOf every_s = {1, 2};  // from one to the next
  SpanOf for_s = {0.1, 1};
  int most = 1;  // so often
};

struct Scenario {
  std::string name;
  int workers = 3;  // that dial in
  int locals = 1;   // that central starts
  int spares = 0;   // that dial in later, while the run trains
  int behind = 0;   // of `workers`, those whom nobody can dial
  int sites = 0;    // over which devices are spread in turn; 0: nobody says where it is
  int layers = 6;
  bool sync = true;
  bool clips = false;  // gradients by their norm; sync
  int64_t micro_batches = 2;
  int64_t batch = 4;     // samples
  int64_t samples = 40;  // an epoch
  int64_t steps = 24;
  int64_t barrier = 4;    // steps
  int64_t replicate = 1;  // ReplicationOptions::every
  bool checkpoints = false;
  bool evaluates = false;
  bool loses_nothing = false;  // a recovery is a broken rule
  int64_t extra_cap = 0;       // beyond N - i
  SpanOf latency_ms = {0.2, 2};
  double state_ms = 20;   // a message with a state takes up to so much longer
  double replica_ms = 0;  // a copy to a neighbour takes up to so much longer
  SpanOf compute_ms = {0.5, 4};
  SpanOf workshop_ms = {1, 30};
  SpanOf disk_ms = {1, 20};
  uint32_t damage_one_in = 0;  // frames
  double moves = 0;            // share of the barriers at which layers move
  // Before the first plan devices are measured, by layers or by ranges.
  enum class First : uint8_t { kNothing, kLayers, kRanges } measures_first = First::kNothing;
  int needs = 1;             // workers, of which a plan needs so many
  double measures = 0;       // share of the barriers at which a device is measured
  double measure_fails = 0;  // share of these
  std::vector<FaultSpec> faults;
  double liveness_s = 300;                   // from the last fault to the end of the run
  std::vector<std::string> expected_errors;  // the run finishes, or ends with one of these texts
};

// InvalidArgument "NAME:LINE: what is wrong, what would be right".
absl::StatusOr<Scenario> ParseScenario(absl::string_view name, absl::string_view text);
// NotFound, and errors as ParseScenario.
absl::StatusOr<Scenario> ReadScenario(const std::string& path);

}  // namespace runnel
