#pragma once

// Which processor of a device runs which instruction of a chain: the dynamic program of Mandheling
// (MobiCom 2022, section 3.3), for any number of processors and with switches that cost by pair and
// by what moves. A pure function; any thread.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace runnel {

// Of an instruction on a processor that does not have it.
inline constexpr double kUnsupported = std::numeric_limits<double>::infinity();

// What going on with another processor costs.
struct SwitchCost {
  double seconds = 0;           // whatever moves
  double seconds_per_byte = 0;  // of what moves
};

// Instructions in the order in which they run, one at a time, and processors by number.
struct InstructionChain {
  // [instruction][processor], not negative; kUnsupported. All rows are of one length.
  std::vector<std::vector<double>> seconds;
  // What moves if the processor changes: [i] between instructions i - 1 and i, [0] from the start,
  // [seconds.size()] to the end. Empty: nothing anywhere.
  std::vector<int64_t> moved_bytes;
  // [from][to]; what stands on the diagonal does not count.
  std::vector<std::vector<SwitchCost>> switches;
  // Where the operands of the first instruction are, and where the results of the last have to be;
  // none: wherever it is best.
  std::optional<int> start;
  std::optional<int> end;

  int instructions() const { return static_cast<int>(seconds.size()); }
  // Of a switch before `instruction`; instructions(): after the last.
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
