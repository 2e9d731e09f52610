#include <memory>

#include "central/subcommand.h"
#include "central/subcommand_run_flags.h"
#include "proto/base/status_macros.h"

namespace runnel {

Subcommand AddPlan(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("plan", "Show how a run would cut the model, without training");
  const auto settings = std::make_shared<RunSettings>();
  AddRunFlags(*app, *settings);
  return {app, [app, settings](const CommandContext& context) {
            RUNNEL_RETURN_IF_ERROR(FinishRunFlags(*app, *settings));
            return PlanCommand(*settings, context);
          }};
}

}  // namespace runnel
