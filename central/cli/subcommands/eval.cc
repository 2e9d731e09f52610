#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/cli/subcommands/run_flags.h"
#include "central/cli/subcommands/subcommand.h"
#include "central/run/inference/quantize_commands.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kEvalExamples[] = R"(
Examples:
  a model in integers on this host
    runnel-central eval --quantized model.q8
    runnel-central eval --quantized model.q8 --backend opencl
  the same by three stages on this host, and with two devices that dial in
    runnel-central eval --quantized model.q8 --local-workers 3
    runnel-central eval --quantized model.q8 --workers 2 --listen 192.168.1.10:7000)";

// The flags of a run that a pipeline takes.
const std::vector<std::string>& PipelineFlags() {
  static const auto* const names = new std::vector<std::string>{
      "local-workers",  "workers",   "listen",        "worker-timeout-s",
      "policy",         "links",     "backend",       "backend-option",
      "worker-threads", "link-mbps", "link-delay-ms", "eval-batch-size"};
  return *names;
}

// Flags for a check-point folder, or for a model in integers.
struct EvalFlags {
  EvalArguments trained;
  std::string quantized;
  std::string profile;
  RunFlags run;
};

// The settings of the stages: one on this host, unless the flags say otherwise.
absl::StatusOr<RunSettings> PipelineOf(const Command& app, EvalFlags& flags) {
  RUNNEL_ASSIGN_OR_RETURN(RunSettings settings, FinishRunFlags(app, flags.run));
  const std::set<std::string>& given = flags.run.given;
  if (flags.quantized.empty() && (!given.empty() || flags.run.quick)) {
    return absl::InvalidArgumentError(absl::StrCat("--", given.empty() ? "quick" : *given.begin(),
                                                   ": is for models in integers, give --quantized "
                                                   "too"));
  }
  if (settings.local_workers == 0 && settings.workers == 0) settings.local_workers = 1;
  if (flags.profile.empty() || settings.local_workers + settings.workers == 1) return settings;
  return absl::InvalidArgumentError(
      "--profile: times the layers of one device, leave out --local-workers and --workers");
}

absl::Status Eval(const Command& app, EvalFlags& flags, const CommandContext& context) {
  const EvalArguments& trained = flags.trained;
  if (trained.checkpoint_dir.empty() == flags.quantized.empty()) {
    return absl::InvalidArgumentError(
        "eval: give either --checkpoint-dir or --quantized, see runnel-central eval --help");
  }
  RUNNEL_ASSIGN_OR_RETURN(RunSettings pipeline, PipelineOf(app, flags));
  if (!flags.quantized.empty()) {
    return EvalQuantizedCommand(
        {flags.quantized, trained.data_dir, trained.summary, flags.profile, std::move(pipeline)},
        context);
  }
  if (!flags.profile.empty()) {
    return absl::InvalidArgumentError("--profile: is for models in integers, give --quantized too");
  }
  return EvalCommand(trained, context);
}

}  // namespace

Subcommand AddEval(const Command& program) {
  const Command app = program.AddCommand(
      "eval", "Evaluate the newest weights of a check-point folder, or a model in integers");
  const auto flags = std::make_shared<EvalFlags>();
  app.Add("--checkpoint-dir", flags->trained.checkpoint_dir, "folder with check-points");
  app.Add("--quantized", flags->quantized, "INT8 model, written by runnel-central quantize");
  app.Add("--profile", flags->profile,
          "with --quantized: file for time and error against FP32 of each layer; it ends in "
          ".md, .json or .svg");
  app.Add("--data-dir", flags->trained.data_dir,
          "folder with the data set (default: as in training)");
  app.Add("--summary", flags->trained.summary, kSummaryHelp);
  AddRunFlags(app, PipelineFlags(), flags->run);
  app.Footer(kEvalExamples);
  return {app, [app, flags](const CommandContext& context) { return Eval(app, *flags, context); }};
}

}  // namespace runnel
