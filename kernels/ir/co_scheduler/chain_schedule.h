#pragma once

// Assigns the instructions of a chain to the processors of a device: the dynamic program of
// Mandheling (MobiCom 2022, section 3.3), for any number of processors, with switches whose cost
// depends on the pair and on the moved bytes. A pure function; any thread.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace runnel {

// Cost of an instruction on a processor that lacks it.
inline constexpr double kUnsupported = std::numeric_limits<double>::infinity();

// Cost of going on with another processor.
struct SwitchCost {
  double seconds = 0;           // whatever moves
  double seconds_per_byte = 0;  // for the moved bytes
};

// Instructions in the order in which they run, one at a time, and processors by number.
struct InstructionChain {
  // [instruction][processor], not negative; kUnsupported. All rows are of one length.
  std::vector<std::vector<double>> seconds;
  // Bytes that move if the processor changes: [i] between instructions i - 1 and i, [0] from the
  // start, [seconds.size()] to the end. Empty: nothing anywhere.
  std::vector<int64_t> moved_bytes;
  // [from][to]; what stands on the diagonal does not count.
  std::vector<std::vector<SwitchCost>> switches;
  // Processor that has the operands of the first instruction, and processor that must have the
  // results of the last; none: free to choose.
  std::optional<int> start;
  std::optional<int> end;

  int instructions() const { return static_cast<int>(seconds.size()); }
  // Seconds of a switch before `instruction`; instructions(): after the last.
  double SwitchSeconds(int from, int to, int instruction) const;
};

struct ChainSchedule {
  std::vector<int> processors;  // by instruction
  double seconds = 0;           // switches and instructions
};

// The schedule that takes the least time. Of equal ones the processor stays what it was; of equal
// last processors the one with the lowest number counts. Time: instructions * processors^2.
// InvalidArgument: the sizes do not fit each other; Unimplemented: no processor has instruction i,
// whose number is in the message.
absl::StatusOr<ChainSchedule> ScheduleChain(const InstructionChain& chain);

}  // namespace runnel
