#include <memory>
#include <string>

#include "central/cli/subcommand.h"

namespace runnel {

Subcommand AddReplay(CLI::App& program) {
  struct Flags {
    std::string journal;
    std::string summary;
  };
  CLI::App* app =
      program.add_subcommand("replay", "Train again from a journal and compare the weights");
  const auto flags = std::make_shared<Flags>();
  app->add_option("--journal", flags->journal, "journal of a finished run")->required();
  app->add_option("--summary", flags->summary, kSummaryHelp);
  return {app, [flags](const CommandContext& context) {
            return ReplayCommand(flags->journal, flags->summary, context);
          }};
}

}  // namespace runnel
