#include "kernels/ir/co_scheduler/program_schedule.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/random.h"

namespace runnel {
namespace {

// Whether an operand comes from, or goes to, somewhere beyond this part.
bool IsOutside(const FlowValue& value, Part part) {
  if (value.part != part || value.writer < 0) return true;
  const bool is_boundary =
      value.place.storage == Storage::kOutput || value.place.storage == Storage::kInputGradient;
  if (is_boundary && value.survives_part) return true;
  return std::any_of(value.readers.begin(), value.readers.end(),
                     [part](const FlowValue::Reader& reader) { return reader.part != part; });
}

// What an instruction's operands beyond its part cost on one processor.
class OutsideCost {
 public:
  OutsideCost(const Program& program, const ProgramFlow& flow, const ValueHomes& homes, Part part,
              const std::vector<SwitchCost>& from_host)
      : program_(program), flow_(flow), homes_(homes), part_(part), from_host_(from_host) {}

  double SecondsOf(int i, int processor) const {
    const Instruction& instruction = program_.part(part_)[static_cast<size_t>(i)];
    const ProgramFlow::Operands& values = flow_.of(part_, i);
    double seconds = 0;
    for (size_t k = 0; k < instruction.inputs.size(); ++k)
      seconds += OperandSeconds(instruction.inputs[k], values.inputs[k], processor, false);
    for (size_t k = 0; k < instruction.outputs.size(); ++k)
      seconds += OperandSeconds(instruction.outputs[k], values.outputs[k], processor, true);
    return seconds;
  }

 private:
  double OperandSeconds(BufferIndex index, int number, int processor, bool is_output) const {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(index)];
    const auto bytes = static_cast<double>(CopyOf(buffer).bytes());
    if (number == kNoValue) {
      const bool is_weight = buffer.storage == Storage::kParameters;
      const bool is_forward = part_ == Part::kForward || part_ == Part::kForwardEval;
      return IsState(buffer.storage) && (!is_weight || is_forward) ? bytes * PerByte(processor) : 0;
    }
    const FlowValue& value = flow_.values[static_cast<size_t>(number)];
    if (!IsOutside(value, part_)) return 0;
    if (is_output) return Keeps(value, processor) ? 0 : bytes * PerByte(processor);
    if (value.part == part_ && value.writer >= 0) return 0;
    const int writer =
        value.writer < 0
            ? 0
            : homes_.assignment[static_cast<size_t>(value.part)][static_cast<size_t>(value.writer)];
    if (!Keeps(value, writer)) return bytes * PerByte(processor);
    return writer == processor ? 0 : bytes * (PerByte(writer) + PerByte(processor));
  }

  // Whether the value stays with the processor that wrote it until somebody else wants it.
  bool Keeps(const FlowValue& value, int processor) const {
    const bool is_inner =
        value.place.storage == Storage::kStash || value.place.storage == Storage::kScratch;
    return is_inner && processor > 0 && homes_.keeps_values[static_cast<size_t>(processor)];
  }

  double PerByte(int processor) const {
    return processor == 0 ? 0 : from_host_[static_cast<size_t>(processor)].seconds_per_byte;
  }

  const Program& program_;
  const ProgramFlow& flow_;
  const ValueHomes& homes_;
  const Part part_;
  const std::vector<SwitchCost>& from_host_;
};

// By switch: the bytes of values that this part wrote before it and reads behind it.
std::vector<int64_t> LiveBytes(const ProgramFlow& flow, Part part, int instructions) {
  std::vector<int64_t> bytes(static_cast<size_t>(instructions) + 1);
  for (const FlowValue& value : flow.values) {
    if (value.part != part || value.writer < 0) continue;
    int last = value.writer;
    for (const FlowValue::Reader& reader : value.readers) {
      if (reader.part == part) last = std::max(last, reader.instruction);
    }
    for (int i = value.writer + 1; i <= last; ++i)
      bytes[static_cast<size_t>(i)] += CopyOf(value.place).bytes();
  }
  return bytes;
}

absl::StatusOr<int> FindProcessor(absl::string_view name,
                                  const std::vector<std::string>& processors) {
  const auto found = std::find(processors.begin(), processors.end(), name);
  if (found != processors.end()) return static_cast<int>(found - processors.begin());
  return absl::InvalidArgumentError(
      absl::StrCat("processor '", name, "' is none of ", absl::StrJoin(processors, ", ")));
}

bool IsCode(absl::string_view name) {
  for (int code = 0; Name(static_cast<OpCode>(code)) != "?"; ++code) {
    if (Name(static_cast<OpCode>(code)) == name) return true;
  }
  return name == "*";
}

}  // namespace

Assignment ProgramSchedule::assignment() const {
  Assignment assignment;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (const ScheduledInstruction& one : parts[part]) assignment[part].push_back(one.processor);
  }
  return assignment;
}

double ProgramSchedule::PartSeconds(Part part) const {
  double seconds = 0;
  for (const ScheduledInstruction& one : parts[static_cast<size_t>(part)])
    seconds = std::max(seconds, one.begin_seconds + one.switch_seconds + one.seconds);
  return seconds + back_seconds[static_cast<size_t>(part)];
}

InstructionChain MakeChain(const Program& program, const ProgramFlow& flow, const ValueHomes& homes,
                           Part part, std::vector<std::vector<double>> seconds,
                           std::vector<std::vector<SwitchCost>> switches) {
  InstructionChain chain;
  chain.seconds = std::move(seconds);
  chain.switches = std::move(switches);
  const OutsideCost outside(program, flow, homes, part, chain.switches[0]);
  for (int i = 0; i < chain.instructions(); ++i) {
    for (int p = 0; p < static_cast<int>(chain.switches.size()); ++p)
      chain.seconds[static_cast<size_t>(i)][static_cast<size_t>(p)] += outside.SecondsOf(i, p);
  }
  chain.moved_bytes = LiveBytes(flow, part, chain.instructions());
  chain.start = chain.end = 0;
  return chain;
}

absl::StatusOr<AssignmentRule> AssignmentRule::Parse(absl::string_view text,
                                                     const std::vector<std::string>& processors) {
  AssignmentRule rule;
  if (text.empty()) return rule;
  if (text == "alternate") {
    rule.alternates_ = true;
    return rule;
  }
  constexpr absl::string_view kRandom = "random:";
  if (uint64_t seed = 0;
      absl::StartsWith(text, kRandom) && absl::SimpleAtoi(text.substr(kRandom.size()), &seed)) {
    rule.random_seed_ = seed;
    return rule;
  }
  for (absl::string_view row : absl::StrSplit(text, '+')) {
    const std::vector<std::string> words = absl::StrSplit(row, '=');
    if (words.size() != 2 || !IsCode(words[0])) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", row,
                       "' is not alternate, random:SEED or INSTRUCTION=PROCESSOR, such as "
                       "int8_conv_forward=",
                       processors.back(), " or *=", processors.back()));
    }
    absl::StatusOr<int> processor = FindProcessor(words[1], processors);
    if (!processor.ok()) return processor.status();
    rule.rows_.push_back({words[0], *processor});
  }
  return rule;
}

int AssignmentRule::Wanted(const Instruction& instruction, Position of, int processors) const {
  if (alternates_) return of.number % processors;
  if (random_seed_.has_value()) {
    // One in three changes: segments of all lengths.
    const CounterRandom random(*random_seed_, RandomPurpose::kTest,
                               static_cast<uint64_t>(instruction.code),
                               static_cast<uint64_t>(of.number));
    if (random.Below(0, 3) > 0) return of.before;
    return static_cast<int>(random.Below(1, static_cast<uint32_t>(processors)));
  }
  for (const Row& row : rows_) {
    if (row.code == "*" || row.code == Name(instruction.code)) return row.processor;
  }
  return 0;
}

std::vector<int> AssignmentRule::Choose(const std::vector<Instruction>& part,
                                        const InstructionChain& chain) const {
  std::vector<int> chosen;
  const int processors = static_cast<int>(chain.switches.size());
  for (int i = 0; i < chain.instructions(); ++i) {
    const std::vector<double>& seconds = chain.seconds[static_cast<size_t>(i)];
    const int before = chosen.empty() ? 0 : chosen.back();
    int processor = Wanted(part[static_cast<size_t>(i)], {i, before}, processors);
    if (seconds[static_cast<size_t>(processor)] == kUnsupported) processor = 0;
    while (processor + 1 < processors && seconds[static_cast<size_t>(processor)] == kUnsupported)
      ++processor;
    chosen.push_back(processor);
  }
  return chosen;
}

void FillCosts(const InstructionChain& chain, const std::vector<int>& processors, Part part,
               ProgramSchedule& schedule) {
  int at = *chain.start;
  double seconds = 0;
  for (int i = 0; i < chain.instructions(); ++i) {
    ScheduledInstruction one;
    one.processor = processors[static_cast<size_t>(i)];
    one.seconds = chain.seconds[static_cast<size_t>(i)][static_cast<size_t>(one.processor)];
    one.switch_seconds = chain.SwitchSeconds(at, one.processor, i);
    if (one.processor != at) one.switch_bytes = chain.moved_bytes[static_cast<size_t>(i)];
    one.begin_seconds = seconds;
    seconds += one.switch_seconds + one.seconds;
    at = one.processor;
    schedule.parts[static_cast<size_t>(part)].push_back(one);
  }
  schedule.back_seconds[static_cast<size_t>(part)] =
      chain.SwitchSeconds(at, *chain.end, chain.instructions());
}

}  // namespace runnel
