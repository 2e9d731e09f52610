#include "kernels/backends/mixed/instruction_costs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/measure/lone_instruction.h"
#include "kernels/backends/mixed/mixed_executable.h"
#include "kernels/ir/co_scheduler/segments.h"
#include "kernels/ir/co_scheduler/value_flow.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// An instruction that takes longer is timed once; a shorter one so often that it comes to this.
constexpr double kBurstSeconds = 3e-3;
constexpr int kMostCopies = 32;
constexpr int kMostRuns = 5;  // after one that is not timed; the fastest counts
constexpr int64_t kLargeCopyBytes = 4 << 20;

// Instructions with the same text take the same time.
std::string TextOf(const Program& program, const Instruction& instruction) {
  const OpSpec& op = instruction.attributes;
  std::string text =
      absl::StrCat(Name(instruction.code), " ", op.kernel[0], ",", op.kernel[1], " ", op.stride[0],
                   ",", op.stride[1], " ", op.padding[0], ",", op.padding[1], " ", op.groups, " ",
                   op.rate, " ", op.dilation[0], ",", op.dilation[1], " ", op.begin, " ",
                   instruction.split.samples, instruction.split.shifted ? "s" : "");
  for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
    for (BufferIndex index : *operands) {
      const Buffer& buffer = program.buffers[static_cast<size_t>(index)];
      absl::StrAppend(&text, " ", Name(buffer.dtype), buffer.shape.ToString());
    }
  }
  return text;
}

absl::StatusOr<Segment> SegmentOf(const Program& alone, Part part, int processor) {
  RUNNEL_ASSIGN_OR_RETURN(const ProgramFlow flow, FollowValues(alone));
  Assignment assignment;
  assignment[static_cast<size_t>(part)] = {processor};
  // One segment shares no values.
  const std::vector<bool> keeps_values(static_cast<size_t>(processor) + 1);
  return CutIntoSegments(alone, flow, assignment, {}, keeps_values).front();
}

}  // namespace

absl::StatusOr<double> InstructionCosts::RunSeconds(const Program& alone, Part part, int copies) {
  RUNNEL_ASSIGN_OR_RETURN(Segment segment, SegmentOf(alone, part, number_));
  std::vector<Instruction>& own = segment.program.parts[static_cast<size_t>(part)];
  own.resize(static_cast<size_t>(copies), Instruction(own[0]));
  std::vector<Segment> segments;
  segments.push_back(std::move(segment));
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Executable> executable,
                          PrepareSegments(std::move(segments), platform_));
  RUNNEL_ASSIGN_OR_RETURN(const Surroundings around, Surround(alone));
  const StepContext context;
  RUNNEL_RETURN_IF_ERROR(executable->Run(part, context, around.bindings));
  double least = kUnsupported, all = 0;
  for (int run = 0; run < kMostRuns && all < kBurstSeconds; ++run) {
    const int64_t begin = clock_->NowNanos();
    RUNNEL_RETURN_IF_ERROR(executable->Run(part, context, around.bindings));
    const double seconds = static_cast<double>(clock_->NowNanos() - begin) * 1e-9;
    least = std::min(least, seconds);
    all += seconds;
  }
  return least;
}

absl::StatusOr<double> InstructionCosts::Time(const Program& alone, Part part) {
  RUNNEL_ASSIGN_OR_RETURN(const double once, RunSeconds(alone, part, 1));
  if (once >= kBurstSeconds) {
    RUNNEL_ASSIGN_OR_RETURN(const SwitchCost cost, SwitchFromHost(/*may_time=*/true));
    const Instruction& one = alone.part(part)[0];
    const double moved = CountWork(alone, one).bytes * cost.seconds_per_byte;
    return std::max(once - 2 * cost.seconds - moved, once / 10);
  }
  const int copies =
      static_cast<int>(std::clamp(kBurstSeconds / std::max(once, 1e-7), 3.0, kMostCopies * 1.0));
  RUNNEL_ASSIGN_OR_RETURN(const double all, RunSeconds(alone, part, copies));
  return std::max((all - once) / (copies - 1), 1e-7);
}

absl::StatusOr<double> InstructionCosts::SecondsOf(const Program& program, Part part,
                                                   const Instruction& instruction, bool may_time) {
  const auto [found, is_new] = known_.try_emplace(TextOf(program, instruction));
  Known& known = found->second;
  const Program alone = Alone(program, part, instruction);
  if (is_new) {
    RUNNEL_ASSIGN_OR_RETURN(const Segment segment, SegmentOf(alone, part, number_));
    const absl::Status prepared = backend().Prepare(segment.program).status();
    if (!prepared.ok() && !absl::IsUnimplemented(prepared)) return prepared;
    known.has = prepared.ok();
  }
  if (!known.has) return kUnsupported;
  const NominalRates& rates = platform_->traits[static_cast<size_t>(number_)].rates;
  const double counted = CountedSeconds(rates, CountWork(program, instruction));
  if (!may_time || !rates.is_timed) return counted;
  if (known.seconds >= 0) return known.seconds;
  if (timed_seconds_ >= kTimingSeconds)
    return timed_counted_ > 0 ? counted * timed_cost_ / timed_counted_ : counted;
  const int64_t begin = clock_->NowNanos();
  RUNNEL_ASSIGN_OR_RETURN(known.seconds, Time(alone, part));
  timed_seconds_ += static_cast<double>(clock_->NowNanos() - begin) * 1e-9;
  timed_cost_ += known.seconds;
  timed_counted_ += counted;
  return known.seconds;
}

// There and back, of a copy.
absl::StatusOr<double> InstructionCosts::CopySeconds(int64_t bytes) {
  Program program;
  program.batch = 1;
  for (Storage storage : {Storage::kInput, Storage::kOutput})
    program.buffers.push_back({storage, DType::kUInt8, Shape{1, bytes}});
  program.parts[0] = {{OpCode::kCopy, {0}, {1}}};
  return RunSeconds(program, Part::kForward, 1);
}

absl::StatusOr<SwitchCost> InstructionCosts::SwitchFromHost(bool may_time) {
  const NominalRates& rates = platform_->traits[static_cast<size_t>(number_)].rates;
  if (number_ == 0) return SwitchCost();
  if (!may_time || !rates.is_timed) return rates.switch_cost;
  if (switch_ != nullptr) return *switch_;
  RUNNEL_ASSIGN_OR_RETURN(const double small, CopySeconds(64));
  RUNNEL_ASSIGN_OR_RETURN(const double large, CopySeconds(kLargeCopyBytes));
  const double per_byte = std::max(large - small, 0.0) / (2.0 * kLargeCopyBytes);
  switch_ = std::make_unique<SwitchCost>(SwitchCost{small / 2, per_byte});
  return *switch_;
}

}  // namespace runnel
