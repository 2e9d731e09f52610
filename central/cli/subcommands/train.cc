#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "central/cli/subcommands/run_flags.h"
#include "central/cli/subcommands/subcommand.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kTrainExamples[] = R"(
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

absl::StatusOr<std::vector<uint64_t>> ParseSeeds(const std::string& text) {
  std::vector<uint64_t> seeds;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(part, &seeds.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--seeds ", text, ": must be integers of at least 0 with commas between them"));
    }
  }
  const std::set<uint64_t> different(seeds.begin(), seeds.end());
  if (different.size() == seeds.size()) return seeds;
  return absl::InvalidArgumentError(absl::StrCat("--seeds ", text, ": has a seed twice"));
}

}  // namespace

Subcommand AddTrain(const Command& program) {
  const Command app = program.AddCommand("train", "Train a model");
  const auto flags = std::make_shared<RunFlags>();
  AddRunFlags(app, *flags);
  const auto seeds = std::make_shared<std::string>();
  app.Add("--seeds", *seeds,
          "train once with each of these seeds (1,2,3), one run after the other, and print "
          "the mean accuracy and its deviation");
  app.Footer(kTrainExamples);
  return {app, [app, flags, seeds](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(RunSettings settings, FinishRunFlags(app, *flags));
            RUNNEL_RETURN_IF_ERROR(ListenWhereWorkersWait(*flags, context, settings));
            if (app.TimesGiven("--seeds") == 0) return TrainCommand(settings, context);
            if (app.TimesGiven("--seed") > 0)
              return absl::InvalidArgumentError("--seeds and --seed: give one of them");
            RUNNEL_ASSIGN_OR_RETURN(const std::vector<uint64_t> list, ParseSeeds(*seeds));
            return TrainSeedsCommand(settings, list, context);
          }};
}

}  // namespace runnel
