#include <memory>

#include "central/cli/subcommand.h"

namespace runnel {

Subcommand AddEval(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("eval", "Evaluate the newest weights of a check-point folder");
  const auto flags = std::make_shared<EvalArguments>();
  app->add_option("--checkpoint-dir", flags->checkpoint_dir, "folder with check-points")
      ->required();
  app->add_option("--data-dir", flags->data_dir,
                  "folder with the data set (default: as in training)");
  app->add_option("--summary", flags->summary, kSummaryHelp);
  return {app, [flags](const CommandContext& context) { return EvalCommand(*flags, context); }};
}

}  // namespace runnel
