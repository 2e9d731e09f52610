#include <memory>

#include "central/cli/subcommand.h"
#include "central/cli/subcommand_run_flags.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kExamples[] = R"(
Examples:
  MNIST on this host and two devices that joined (`runnel-central init`, `token`); central measures
  the devices and links, cuts the model and chooses the bits of each link
    runnel-central train --dataset mnist --data-dir ~/data/mnist --workers 2 \
        --listen 192.168.1.10:7000
  three equal stages on this host, 2-bit activations and 8-bit gradients between them
    runnel-central train --local-workers 3 --quick \
        --codec-forward mbq:2 --codec-backward stochastic:8
  integer training with check-points for `resume` and a journal for `replay`
    runnel-central train --model vgg_small_7 --recipe niti --data-dir ~/data/cifar10 \
        --checkpoint-dir runs/vgg --journal runs/vgg.journal
  flags from a file; the command line has precedence
    runnel-central train --config har.conf --epochs 20)";

}  // namespace

Subcommand AddTrain(CLI::App& program) {
  CLI::App* app = program.add_subcommand("train", "Train a model");
  const auto flags = std::make_shared<RunFlags>();
  AddRunFlags(*app, *flags);
  app->footer(kExamples);
  return {app, [app, flags](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const RunSettings settings, FinishRunFlags(*app, *flags));
            return TrainCommand(settings, context);
          }};
}

}  // namespace runnel
