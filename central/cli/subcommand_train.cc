#include <memory>

#include "central/cli/subcommand.h"
#include "central/cli/subcommand_run_flags.h"
#include "proto/base/status_macros.h"

namespace runnel {

Subcommand AddTrain(CLI::App& program) {
  CLI::App* app = program.add_subcommand("train", "Train a model");
  const auto settings = std::make_shared<RunSettings>();
  AddRunFlags(*app, *settings);
  return {app, [app, settings](const CommandContext& context) {
            RUNNEL_RETURN_IF_ERROR(FinishRunFlags(*app, *settings));
            return TrainCommand(*settings, context);
          }};
}

}  // namespace runnel
