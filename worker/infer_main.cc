#include "worker/infer_main.h"

#include "CLI/CLI.hpp"
#include "proto/base/status_macros.h"
#include "worker/inference/inference_job.h"

namespace runnel {

std::shared_ptr<const InferCommand> AddInferCommand(CLI::App& program) {
  auto infer = std::make_shared<InferCommand>();
  infer->command = program.add_subcommand("infer", "one job of inference");
  infer->command->group("");
  infer->command->add_option("--job", infer->job, "file with the job")->required();
  infer->command->add_option("--reply", infer->reply, "file for the answer")->required();
  infer->command->add_option("--threads", infer->threads, "compute threads")
      ->check(CLI::Range(1, 256));
  infer->command->add_option("--backend-option", infer->backend_options, BackendOptionsHelp())
      ->type_name("BACKEND.NAME=VALUE")
      ->allow_extra_args(false);
  return infer;
}

absl::Status RunInferCommand(const InferCommand& infer) {
  BackendSettings settings = {.threads = infer.threads};
  RUNNEL_ASSIGN_OR_RETURN(settings.options, BackendOptions::FromFlag(infer.backend_options));
  return RunInferenceJob(infer.job, infer.reply, settings);
}

}  // namespace runnel
