#include <memory>
#include <string>
#include <vector>

#include "central/cli/subcommand.h"
#include "central/cli/subcommand_run_flags.h"
#include "proto/base/status_macros.h"

namespace runnel {

Subcommand AddPlan(CLI::App& program) {
  struct Flags {
    RunSettings settings;
    std::vector<std::string> what_if;
  };
  CLI::App* app =
      program.add_subcommand("plan", "Show how a run would cut the model, without training");
  const auto flags = std::make_shared<Flags>();
  AddRunFlags(*app, flags->settings);
  app->add_option("--what-if", flags->what_if,
                  "also the plan if a device left or links changed, without doing it: leave:NAME, "
                  "mbps:X, link:NAME,NAME:X");
  return {app, [app, flags](const CommandContext& context) {
            RUNNEL_RETURN_IF_ERROR(FinishRunFlags(*app, flags->settings));
            return PlanCommand(flags->settings, flags->what_if, context);
          }};
}

}  // namespace runnel
