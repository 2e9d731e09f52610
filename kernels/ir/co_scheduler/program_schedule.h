#pragma once

// Assigns the instructions of a program to processors: by cost for the chains of its parts, or by
// rules whatever the cost.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/ir/co_scheduler/chain_schedule.h"
#include "kernels/ir/co_scheduler/segments.h"
#include "kernels/ir/program.h"

namespace runnel {

struct ScheduledInstruction {
  int processor = 0;
  double seconds = 0;         // including copies from and to other parts
  double switch_seconds = 0;  // before it; 0: none
  int64_t switch_bytes = 0;   // bytes that move then
  // When its switch, or else itself, begins after the begin of its part. Below 0: beside the
  // input-gradient, which ends when the weight-gradient begins.
  double begin_seconds = 0;
};

struct ProgramSchedule {
  std::vector<std::string> processors;  // names, the host first
  std::vector<std::string> sources;     // each with where its costs come from: "cpu (measured)"
  std::array<std::vector<ScheduledInstruction>, kPartCount> parts;  // by instruction
  std::array<double, kPartCount> back_seconds = {};  // to the host, after the last instruction
  Grouping grouping;                                 // grouping for CutIntoSegments

  Assignment assignment() const;
  // Seconds from a part's start to its end, switches included.
  double PartSeconds(Part part) const;
};

// Known places of values when a part is scheduled: their writers in earlier parts, and the
// processors that keep them.
struct ValueHomes {
  const Assignment& assignment;
  const std::vector<bool>& keeps_values;  // as in CutIntoSegments
};

// The chain of a part: it starts and ends on processor 0. `seconds`: of an instruction there alone,
// by number of processor; kUnsupported. switches: as InstructionChain's. An instruction costs more
// beside them: the bytes that it reads from other parts and from state, and those that it leaves to
// them, weights once in the forward. Values that a processor keeps cost nothing there; who reads
// them elsewhere pays both ways.
InstructionChain MakeChain(const Program& program, const ProgramFlow& flow, const ValueHomes& homes,
                           Part part, std::vector<std::vector<double>> seconds,
                           std::vector<std::vector<SwitchCost>> switches);

// A rule in place of the dynamic program, for tests and for those who know better.
class AssignmentRule {
 public:
  // "alternate": one instruction after the other goes to the next processor that has it.
  // "random:SEED": runs of instructions go to drawn processors. "CODE=NAME+CODE=NAME...":
  // instructions of that code (Name(OpCode); '*': all) go to that processor if it has them; the
  // first fitting row counts; all others stay on the host. Empty: no rule. InvalidArgument names
  // the unknown word.
  static absl::StatusOr<AssignmentRule> Parse(absl::string_view text,
                                              const std::vector<std::string>& processors);

  bool is_set() const { return alternates_ || random_seed_.has_value() || !rows_.empty(); }
  // The processor of each instruction of a chain. The host takes instructions that the processor
  // lacks; the first processor that has it, if the host lacks it too.
  std::vector<int> Choose(const std::vector<Instruction>& part,
                          const InstructionChain& chain) const;

 private:
  struct Row {
    std::string code;
    int processor = 0;
  };
  // of what: the instruction's number in its part, and on which processor the one before it is.
  struct Position {
    int number = 0;
    int before = 0;
  };
  int Wanted(const Instruction& instruction, Position of, int processors) const;

  bool alternates_ = false;
  std::optional<uint64_t> random_seed_;
  std::vector<Row> rows_;
};

// Fills in the cost of each instruction on its processor, and of the switches, one after the other.
void FillCosts(const InstructionChain& chain, const std::vector<int>& processors, Part part,
               ProgramSchedule& schedule);

}  // namespace runnel
