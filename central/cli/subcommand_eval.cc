#include <memory>

#include "central/cli/subcommand.h"
#include "central/run/inference/quantize_commands.h"

namespace runnel {
namespace {

// Of a check-point folder, or of a model in integers.
struct EvalFlags {
  EvalArguments trained;
  std::string quantized;
  std::string profile;
};

absl::Status Eval(const EvalFlags& flags, const CommandContext& context) {
  const EvalArguments& trained = flags.trained;
  if (trained.checkpoint_dir.empty() == flags.quantized.empty()) {
    return absl::InvalidArgumentError(
        "eval: give either --checkpoint-dir or --quantized, see runnel-central eval --help");
  }
  if (!flags.quantized.empty()) {
    return EvalQuantizedCommand({flags.quantized, trained.data_dir, trained.summary, flags.profile},
                                context);
  }
  if (!flags.profile.empty()) {
    return absl::InvalidArgumentError("--profile: is for models in integers, give --quantized too");
  }
  return EvalCommand(trained, context);
}

}  // namespace

Subcommand AddEval(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "eval", "Evaluate the newest weights of a check-point folder, or a model in integers");
  const auto flags = std::make_shared<EvalFlags>();
  app->add_option("--checkpoint-dir", flags->trained.checkpoint_dir, "folder with check-points");
  app->add_option("--quantized", flags->quantized, "file of runnel-central quantize");
  app->add_option("--profile", flags->profile,
                  "with --quantized: file for what each layer costs here and how far it is from "
                  "FP32; it ends in .md, .json or .svg");
  app->add_option("--data-dir", flags->trained.data_dir,
                  "folder with the data set (default: as in training)");
  app->add_option("--summary", flags->trained.summary, kSummaryHelp);
  return {app, [flags](const CommandContext& context) { return Eval(*flags, context); }};
}

}  // namespace runnel
