#include <memory>

#include "central/cli/subcommands/subcommand.h"

namespace runnel {
namespace {

constexpr char kResumeExamples[] = R"(
Examples:
  central was killed; its workers wait and join again by themselves
    runnel-central resume --checkpoint-dir runs/mnist
  it has trained its 3 epochs, and is still learning
    runnel-central resume --checkpoint-dir runs/mnist --epochs 6
  the same run in another place
    runnel-central resume --checkpoint-dir /mnt/runs/mnist --data-dir /mnt/mnist \
        --journal /mnt/runs/mnist.journal --listen 192.168.1.20:7000)";

}  // namespace

Subcommand AddResume(const Command& program) {
  const Command app = program.AddCommand("resume", "Go on from the last check-point of a folder");
  const auto flags = std::make_shared<ResumeArguments>();
  app.Add("--checkpoint-dir", flags->checkpoint_dir, "folder with check-points").Required();
  app.Add("--local-workers", flags->local_workers, "stages on this host (default: as before)");
  app.Add("--workers", flags->workers, "workers that dial in (default: as before)");
  app.Add("--epochs", flags->epochs,
          "train on, to so many epochs from the run's start; the course of the rate is laid over "
          "them (default: as before)")
      .Count();
  app.Add("--max-batches", flags->max_batches, "stop after this many steps from the run's start")
      .Count();
  app.Add("--data-dir", flags->data_dir,
          "folder with the data set's original files (default: as before)");
  app.Add("--journal", flags->journal,
          "the run's journal, where it is now; '': go on without it (default: as before)");
  app.Add("--listen", flags->listen,
          "address for workers that dial in (default: the address and port that the run "
          "had, where its workers dial again)");
  app.Add("--metrics-port", flags->metrics_port,
          "HTTP port on this host; 0: any free one, -1: none (default: as before)")
      .Between(int64_t{-1}, int64_t{65535});
  app.Add("--summary", flags->summary, kSummaryHelp);
  app.Add("--report", flags->report, "HTML file for the page as it is at the end");
  app.Footer(kResumeExamples);
  return {app, [flags](const CommandContext& context) { return ResumeCommand(*flags, context); }};
}

}  // namespace runnel
