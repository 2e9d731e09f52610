#include "worker/measure/list_program.h"

#include <string>

#include "kernels/compiler.h"
#include "proto/base/status_macros.h"

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

}  // namespace

absl::StatusOr<ProgramListing> ListProgram(const ListedStage& stage, const Recipe& recipe,
                                           CoScheduler& processors) {
  const CompileOptions options = {.accumulates_gradients = stage.accumulates,
                                  .max_batch = stage.samples,
                                  .recomputes = processors.recomputes(),
                                  .rescale = stage.rescale,
                                  .rescales_in_products = processors.rescales_in_products()};
  if (stage.rescale.keeps() && !processors.rescales_in_products()) {
    return absl::UnimplementedError(
        "not all of these processors keep scales: take --rescale dynamic or speculate, or "
        "processors cpu, hexagon and ref");
  }
  RUNNEL_ASSIGN_OR_RETURN(const Program program,
                          CompileStage(stage.model, stage.layers.first_layer,
                                       stage.layers.last_layer, stage.samples, recipe, options));
  RUNNEL_ASSIGN_OR_RETURN(const ProgramSchedule schedule, processors.Schedule(program));
  ProgramListing listing = {
      stage.layers.first_layer, stage.layers.last_layer, stage.samples, schedule.sources, {}};
  for (const auto& [part, name] : kParts) {
    const auto& scheduled = schedule.parts[static_cast<size_t>(part)];
    int at = 0;
    for (size_t i = 0; i < scheduled.size(); ++i) {
      const Instruction& instruction = program.part(part)[i];
      const ScheduledInstruction& one = scheduled[i];
      listing.lines.push_back({name, instruction.layer, instruction.op,
                               std::string(Name(instruction.code)),
                               schedule.processors[static_cast<size_t>(one.processor)], one.seconds,
                               one.processor != at, one.switch_seconds, one.switch_bytes});
      at = one.processor;
    }
    if (scheduled.empty() || scheduled.back().processor == 0) continue;
    const double back = schedule.back_seconds[static_cast<size_t>(part)];
    listing.lines.push_back({name, 0, 0, "", schedule.processors[0], 0, true, back, 0});
  }
  return listing;
}

}  // namespace runnel
