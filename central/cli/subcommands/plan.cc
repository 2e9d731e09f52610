#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/cli/subcommands/run_flags.h"
#include "central/cli/subcommands/subcommand.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kPlanExamples[] = R"(
Examples:
  the cut of MobileNetV2 by `runnel` for three devices, and for two of them
    runnel-central plan --model mobilenet_v2 --local-workers 3 --policy runnel --what-if leave:local-001
  the same with links of 4 Mbps
    runnel-central plan --model mobilenet_v2 --local-workers 3 --policy runnel --what-if mbps:4
  the instructions of each stage and the processor of each instruction
    runnel-central plan --model vgg11 --recipe niti --local-workers 2 --backend cpu,opencl --program)";

}  // namespace

Subcommand AddPlan(const Command& program) {
  struct Flags {
    RunFlags run;
    std::vector<std::string> what_if;
    bool program = false;
  };
  const Command app =
      program.AddCommand("plan", "Show how a run would cut the model, without training");
  const auto flags = std::make_shared<Flags>();
  AddRunFlags(app, flags->run);
  app.Footer(kPlanExamples);
  app.Add("--what-if", flags->what_if,
          absl::StrCat("also the plan for a change that is not made: ", kAssumptionHelp));
  app.AddSwitch(
      "--program", flags->program,
      "also each stage's instructions, as its worker lists them: instruction, processor, cost, "
      "switch");
  return {app, [app, flags](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(RunSettings settings, FinishRunFlags(app, flags->run));
            RUNNEL_RETURN_IF_ERROR(ListenWhereWorkersWait(flags->run, context, settings));
            return PlanCommand(settings, flags->what_if, flags->program, context);
          }};
}

}  // namespace runnel
