#include "worker/measure/list_program.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/compiler.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "worker/stage/counts/work_energy.h"

namespace runnel {
namespace {

struct PartName {
  Part part;
  const char* name;
};
constexpr PartName kParts[] = {{Part::kForward, "forward"},
                               {Part::kInputGradient, "input_gradient"},
                               {Part::kWeightGradient, "weight_gradient"},
                               {Part::kUpdate, "update"}};

int64_t SplitOf(const Instruction& instruction, int64_t batch) {
  const int64_t slice = instruction.split.SliceOf(batch);
  return slice < batch ? slice : 0;
}

// "conv_forward", and of products on grids what they compute with: "codes_forward (int8)".
std::string NameOf(const Recipe& recipe, const Instruction& instruction) {
  const absl::string_view numbers = ProductNumbers(recipe, instruction);
  return numbers.empty() ? std::string(Name(instruction.code))
                         : absl::StrCat(Name(instruction.code), " (", numbers, ")");
}

void AppendPart(const Recipe& recipe, const Program& program, const ProgramSchedule& schedule,
                Part part, const char* name, ProgramListing& listing) {
  const auto& scheduled = schedule.parts[static_cast<size_t>(part)];
  const std::vector<int>& groups = schedule.grouping[static_cast<size_t>(part)];
  // Where processors run at the same time, each group of one is a switch there and back.
  const bool runs_beside = part == Part::kWeightGradient && !groups.empty();
  std::set<int> begun;
  std::vector<ProgramLine> lines;
  int at = 0;
  for (size_t i = 0; i < scheduled.size(); ++i) {
    const Instruction& instruction = program.part(part)[i];
    const ScheduledInstruction& one = scheduled[i];
    const bool switches =
        runs_beside ? one.processor > 0 && begun.insert(groups[i]).second : one.processor != at;
    lines.push_back({name, instruction.layer, instruction.op, NameOf(recipe, instruction),
                     schedule.processors[static_cast<size_t>(one.processor)], one.seconds, switches,
                     one.switch_seconds, one.switch_bytes, SplitOf(instruction, program.batch),
                     one.begin_seconds});
    at = one.processor;
  }
  if (at != 0 && !runs_beside) {
    const double back = schedule.back_seconds[static_cast<size_t>(part)];
    lines.push_back({name, 0, 0, "", schedule.processors[0], 0, true, back, 0, 0,
                     schedule.PartSeconds(part) - back});
  }
  std::stable_sort(lines.begin(), lines.end(), [](const ProgramLine& a, const ProgramLine& b) {
    return a.begin_seconds < b.begin_seconds;
  });
  listing.lines.insert(listing.lines.end(), lines.begin(), lines.end());
}

// By processor: of a sample, all parts that are listed and a step for each micro-batch.
std::vector<double> JoulesOf(const Program& program, const ProgramSchedule& schedule,
                             const std::vector<ProcessorEnergy>& processors) {
  std::vector<double> joules(processors.size());
  for (const auto& [part, name] : kParts) {
    const auto& scheduled = schedule.parts[static_cast<size_t>(part)];
    for (size_t i = 0; i < scheduled.size(); ++i) {
      const auto processor = static_cast<size_t>(scheduled[i].processor);
      joules[processor] +=
          InstructionJoules(program, program.part(part)[i], processors[processor]) /
          static_cast<double>(program.batch);
    }
  }
  return joules;
}

}  // namespace

absl::StatusOr<ProgramListing> ListProgram(const ListedStage& stage, CoScheduler& processors) {
  const BackendTraits traits = processors.traits();
  const auto& [recipe, programs] = stage.arithmetic;
  RUNNEL_ASSIGN_OR_RETURN(const CompileOptions options,
                          CompileOptionsFor(traits, recipe, programs));
  RUNNEL_ASSIGN_OR_RETURN(
      Program program, CompileStage(stage.model, stage.layers.first_layer, stage.layers.last_layer,
                                    programs.max_batch, recipe, options));
  if (!stage.counts && MeasuresSlices(traits, recipe, programs.batch_split)) {
    const MonotonicClock clock;
    RUNNEL_RETURN_IF_ERROR(
        SplitByProfile(processors, clock, kSplitTimingSeconds, program).status());
  }
  RUNNEL_ASSIGN_OR_RETURN(const ProgramSchedule schedule, processors.Schedule(program));
  ProgramListing listing = {
      stage.layers.first_layer, stage.layers.last_layer, programs.max_batch, schedule.sources, {}};
  const std::vector<double> joules = JoulesOf(program, schedule, processors.processor_energies());
  for (size_t i = 0; i < joules.size(); ++i) {
    if (joules[i] > 0)
      absl::StrAppendFormat(&listing.processors[i], " at %.4g mJ a sample", joules[i] * 1e3);
  }
  for (const auto& [part, name] : kParts) {
    AppendPart(recipe, program, schedule, part, name, listing);
  }
  return listing;
}

}  // namespace runnel
