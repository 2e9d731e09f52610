#pragma once

// Costs of instructions on one processor: timed there, or counted where timing is impossible.

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/mixed/platform.h"
#include "kernels/backends/mixed/processors.h"
#include "proto/base/clock.h"

namespace runnel {

// For one processor, for its lifetime. One thread.
class InstructionCosts {
 public:
  // number: of the processor. clock: borrowed.
  InstructionCosts(std::shared_ptr<Platform> platform, int number, const Clock* clock)
      : platform_(std::move(platform)), number_(number), clock_(clock) {}

  // Seconds of an instruction without copies; kUnsupported where the processor does not have it. An
  // instruction is timed once for its shapes, on random values, for some milliseconds; once all
  // instructions of a program have taken `kTimingSeconds`, the others are counted, at the rate that
  // the timed ones came to. may_time: false counts all. Errors: the processor is lost.
  absl::StatusOr<double> SecondsOf(const Program& program, Part part,
                                   const Instruction& instruction, bool may_time);
  // Cost of a switch from the host to the processor, or back.
  absl::StatusOr<SwitchCost> SwitchFromHost(bool may_time);
  // Timing begins anew, for another program.
  void BeginProgram() { timed_seconds_ = 0; }
  static constexpr double kTimingSeconds = 3;

 private:
  struct Known {
    bool has = false;
    double seconds = -1;  // below 0: not timed yet
  };
  // Times a program that is one instruction and its operands.
  absl::StatusOr<double> Time(const Program& alone, Part part);
  // Fastest time of a run with this many copies of the instruction.
  absl::StatusOr<double> RunSeconds(const Program& alone, Part part, int copies);
  absl::StatusOr<double> CopySeconds(int64_t bytes);
  Backend& backend() const { return platform_->processor(number_); }

  const std::shared_ptr<Platform> platform_;
  const int number_;
  const Clock* const clock_;
  std::map<std::string, Known> known_;  // by what the instruction is
  std::unique_ptr<SwitchCost> switch_;
  double timed_seconds_ = 0;  // seconds spent on timing this program
  double timed_cost_ = 0;     // sums over what was timed
  double timed_counted_ = 0;
};

}  // namespace runnel
