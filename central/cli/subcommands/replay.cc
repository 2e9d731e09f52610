#include <memory>
#include <string>

#include "central/cli/subcommands/subcommand.h"

namespace runnel {

Subcommand AddReplay(const Command& program) {
  struct Flags {
    std::string journal;
    std::string summary;
  };
  const Command app =
      program.AddCommand("replay", "Train again from a journal and compare the weights");
  const auto flags = std::make_shared<Flags>();
  app.Add("--journal", flags->journal, "journal of a finished run").Required();
  app.Add("--summary", flags->summary, kSummaryHelp);
  app.Footer(R"(
Examples:
  whether a run comes to the same weights again; exit code 1 if it does not
    runnel-central replay --journal runs/mnist.journal)");
  return {app, [flags](const CommandContext& context) {
            return ReplayCommand(flags->journal, flags->summary, context);
          }};
}

}  // namespace runnel
