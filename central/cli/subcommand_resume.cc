#include <memory>

#include "central/cli/subcommand.h"

namespace runnel {

Subcommand AddResume(CLI::App& program) {
  CLI::App* app = program.add_subcommand("resume", "Go on from the last check-point of a folder");
  const auto flags = std::make_shared<ResumeArguments>();
  app->add_option("--checkpoint-dir", flags->checkpoint_dir, "folder with check-points")
      ->required();
  app->add_option("--local-workers", flags->local_workers,
                  "stages on this host (default: as before)");
  app->add_option("--workers", flags->workers, "workers that dial in (default: as before)");
  app->add_option("--max-batches", flags->max_batches,
                  "stop after this many steps from the run's start")
      ->check(kCountRange);
  app->add_option("--summary", flags->summary, kSummaryHelp);
  return {app, [flags](const CommandContext& context) { return ResumeCommand(*flags, context); }};
}

}  // namespace runnel
