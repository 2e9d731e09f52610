#pragma once

// Which processor runs which instruction of a program: the chains of its parts, and rules that say
// it whatever it costs.

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
  double seconds = 0;         // with what it takes from and leaves to other parts
  double switch_seconds = 0;  // before it; 0: none
  int64_t switch_bytes = 0;   // that move then
  // When its switch, or else itself, begins after the begin of its part. Below 0: beside the
  // input-gradient, which ends when the weight-gradient begins.
  double begin_seconds = 0;
};

struct ProgramSchedule {
  std::vector<std::string> processors;  // names, the host first
  std::vector<std::string> sources;     // each with where its costs come from: "cpu (measured)"
  std::array<std::vector<ScheduledInstruction>, kPartCount> parts;  // by instruction
  std::array<double, kPartCount> back_seconds = {};  // to the host, after the last instruction
  Grouping grouping;                                 // as CutIntoSegments takes it

  Assignment assignment() const;
  // From a part's begin to its end, switches included.
  double PartSeconds(Part part) const;
};

// What is known of values when a part is scheduled: who wrote them in the parts before it, and who
// keeps them.
struct ValueHomes {
  const Assignment& assignment;
  const std::vector<bool>& keeps_values;  // as CutIntoSegments'
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
  // "random:SEED": runs of instructions go to drawn processors.
  // "CODE=NAME+CODE=NAME...": instructions of that code (Name(OpCode); '*': all) go to that
  // processor where it has them; the first row that fits counts; all others stay on the host.
  // Empty: no rule. InvalidArgument names what is not known.
  static absl::StatusOr<AssignmentRule> Parse(absl::string_view text,
                                              const std::vector<std::string>& processors);

  bool is_set() const { return alternates_ || random_seed_.has_value() || !rows_.empty(); }
  // By instruction of a chain. The host takes what the processor lacks; the first that has it where
  // the host lacks it too.
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

// What these processors cost, instruction by instruction, with the switches between them, one after
// the other.
void FillCosts(const InstructionChain& chain, const std::vector<int>& processors, Part part,
               ProgramSchedule& schedule);

}  // namespace runnel
