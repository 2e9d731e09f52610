#include <memory>
#include <string>
#include <vector>

#include "central/cli/subcommands/run_flags.h"
#include "central/cli/subcommands/subcommand.h"
#include "central/run/sessions/learn_command.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kLearnExamples[] = R"(
Examples:
  class 9 from 100 images, beside 500 latents of the classes that runs/nine knows; layers from
  block3 on train
    runnel-central train --model resnet8 --data-dir ~/data/cifar10 --classes 0-8 \
        --checkpoint-dir runs/nine
    runnel-central learn --from runs/nine --at block3 --classes 9 --samples 100 --replay 500
  five classes, one a session; then what it learned
    runnel-central learn --from runs/five --at block3 --classes 5-9 --sessions 5 \
        --checkpoint-dir runs/ten --summary -
    runnel-central eval --checkpoint-dir runs/ten
  a latent's bytes and what is behind it, by layer
    runnel-central learn --from runs/nine --list-layers)";

// The flags of a run that a session's run takes.
const std::vector<std::string>& SessionFlags() {
  static const auto* const names = new std::vector<std::string>{"data-dir",
                                                                "checkpoint-dir",
                                                                "summary",
                                                                "local-workers",
                                                                "workers",
                                                                "listen",
                                                                "epochs",
                                                                "batch-size",
                                                                "micro-batches",
                                                                "lr",
                                                                "rate",
                                                                "momentum",
                                                                "weight-decay",
                                                                "seed",
                                                                "policy",
                                                                "links",
                                                                "backend",
                                                                "backend-option",
                                                                "worker-threads",
                                                                "barrier-every",
                                                                "worker-timeout-s",
                                                                "metrics-port",
                                                                "linger-s",
                                                                "link-mbps",
                                                                "link-delay-ms"};
  return *names;
}

}  // namespace

Subcommand AddLearn(const Command& program) {
  const Command app = program.AddCommand(
      "learn", "Teach a trained model new classes, from few images and latents of the old ones");
  const auto arguments = std::make_shared<LearnArguments>();
  const auto run = std::make_shared<RunFlags>();
  app.Add("--from", arguments->from, "folder with the check-points of the trained model")
      .Required();
  app.Add("--at", arguments->at,
          "number or name of the first layer that trains; what is before it is frozen, and "
          "its outputs are the latents (default: none, prints what there is)");
  app.Add("--classes", arguments->classes,
          "the new classes, as 9 or 5-9; the model has an output for each");
  app.Add("--samples", arguments->samples, "new images of each of these classes")
      .Between(int64_t{0}, int64_t{1'000'000'000})
      .ShowDefault();
  app.Add("--replay", arguments->replay,
          "latents of classes seen before that are kept and replayed, the same number of "
          "each class; 0: none")
      .Between(int64_t{0}, int64_t{1'000'000'000})
      .ShowDefault();
  app.Add("--latents", arguments->latents, "their type: fp32, fp16, int8").ShowDefault();
  app.Add("--memory-mb", arguments->memory_mb,
          "most that latents may take (default: a quarter of the free memory)")
      .Count();
  app.Add("--sessions", arguments->sessions,
          "sessions among which --classes are shared, one after the other")
      .Count()
      .ShowDefault();
  app.AddSwitch("--list-layers", arguments->lists_layers, "print what --at can be, and end");
  AddRunFlags(app, SessionFlags(), *run);
  app.Footer(kLearnExamples);
  return {app, [app, arguments, run](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(arguments->run, FinishRunFlags(app, *run));
            arguments->given = run->given;
            return LearnCommand(*arguments, context);
          }};
}

}  // namespace runnel
