#pragma once

// A backend that is several: each instruction of a program runs on the processor that the
// co-scheduler gives it (Mandheling, MobiCom 2022, section 3.3), and values are copied where the
// processor changes. Integer recipes give the same bytes whatever runs where.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/co_scheduler/program_schedule.h"

namespace runnel {

struct MixedOptions {
  // AssignmentRule's text; empty: what takes the least time.
  std::string rule;
  // Seconds of each switch from or to the host, by processor, in place of measured or counted ones.
  std::map<std::string, double> switch_seconds = {};
  // Measures nothing: a schedule by nominal rates, the same wherever it is made.
  bool counts = false;
};

// A backend that runs programs on several processors, and reports the schedule.
class CoScheduler : public Backend {
 public:
  // Traffic between the host and the others, since it was made.
  struct Moved {
    int64_t bytes_to_processors = 0;
    int64_t bytes_from_processors = 0;
    int64_t segments = 0;  // segments that the others ran
  };
  virtual Moved moved() const = 0;
  // The schedule that Prepare would make of the program, whose listing ToString(program) is. Errors
  // as Prepare.
  virtual absl::StatusOr<ProgramSchedule> Schedule(const Program& program) = 0;
  // Backend::name() of each.
  virtual std::vector<std::string> processor_names() const = 0;
  // Of each, in the same order.
  virtual std::vector<ProcessorEnergy> processor_energies() const = 0;
};

// processors: the first is the host, which has the stage's state. Costs of programs whose
// arithmetic is exact are measured on the processors that can be timed (processors.h); those of
// others are counted, so that the assignment, and with it the bytes, are a function of the program.
// Prepare: Unimplemented names the first instruction that no processor has. InvalidArgument: no
// processor, or a rule or switch of a processor that is not there.
absl::StatusOr<std::unique_ptr<CoScheduler>> MakeCoScheduler(
    std::vector<std::unique_ptr<Backend>> processors, MixedOptions options);

// "cpu,hexagon", or with a rule "cpu,hexagon@alternate": those of MakeBackend. The first must
// compute in the host's memory: cpu, cpu:SET, ref or torch. One name alone is a co-scheduler of
// one. builtin_backends.cc. InvalidArgument.
absl::StatusOr<std::unique_ptr<CoScheduler>> MakeCoScheduler(absl::string_view names,
                                                             const BackendSettings& settings,
                                                             MixedOptions options = {});
// The processors of such a name; itself for one.
std::vector<std::string> ProcessorsOf(absl::string_view names);

}  // namespace runnel
