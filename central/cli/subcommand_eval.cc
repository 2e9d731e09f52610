#include <memory>

#include "central/cli/subcommand.h"
#include "central/run/inference/quantize_commands.h"

namespace runnel {
namespace {

// Of a check-point folder, or of a model in integers.
struct EvalFlags {
  EvalArguments trained;
  std::string quantized;
};

absl::Status Eval(const EvalFlags& flags, const CommandContext& context) {
  const EvalArguments& trained = flags.trained;
  if (trained.checkpoint_dir.empty() == flags.quantized.empty()) {
    return absl::InvalidArgumentError(
        "eval: give either --checkpoint-dir or --quantized, see runnel-central eval --help");
  }
  if (flags.quantized.empty()) return EvalCommand(trained, context);
  return EvalQuantizedCommand({flags.quantized, trained.data_dir, trained.summary}, context);
}

}  // namespace

Subcommand AddEval(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "eval", "Evaluate the newest weights of a check-point folder, or a model in integers");
  const auto flags = std::make_shared<EvalFlags>();
  app->add_option("--checkpoint-dir", flags->trained.checkpoint_dir, "folder with check-points");
  app->add_option("--quantized", flags->quantized, "file of runnel-central quantize");
  app->add_option("--data-dir", flags->trained.data_dir,
                  "folder with the data set (default: as in training)");
  app->add_option("--summary", flags->trained.summary, kSummaryHelp);
  return {app, [flags](const CommandContext& context) { return Eval(*flags, context); }};
}

}  // namespace runnel
