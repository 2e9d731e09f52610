#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/cli/subcommands/subcommand.h"
#include "central/run/inference/backend_report.h"
#include "central/run/model_check.h"
#include "central/run/own_model.h"
#include "central/run/sessions/latent_layer.h"
#include "proto/base/status_macros.h"

namespace runnel {

Subcommand AddCheck(const Command& program) {
  const Command app = program.AddCommand(
      "check",
      "Print what a model's training takes before anything starts: recipes, backends, memory, "
      "links");
  const auto model = std::make_shared<std::string>();
  const auto training = std::make_shared<CheckedTraining>();
  app.Add("MODEL", *model, "a model of the zoo (train --help lists them), json:FILE or onnx:FILE")
      .Required();
  app.Add("--recipe", training->recipe, "recipe whose memory is counted").ShowDefault();
  app.Add("--stash", training->stash,
          "number type of the activations that are kept for the backward, as train has it");
  app.Add("--recompute", training->recompute, "layers made again in the backward, likewise");
  app.Add("--schedule", training->schedule, "schedule (default: as train)");
  app.Add("--devices", training->devices, "plans for 1 to so many")
      .Between<int64_t>(1, 64)
      .ShowDefault();
  app.Add("--batch-size", training->batch_size, "samples a step").Count().ShowDefault();
  app.Footer(R"(
Examples:
  a network of one's own, on up to 6 devices
    runnel-central check onnx:net.onnx --devices 6
  from which layer on to learn (runnel-central learn --at)
    runnel-central check resnet8)");
  return {app, [model, training](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(ModelSpec spec, ModelNamed(*model));
            RUNNEL_ASSIGN_OR_RETURN(spec, KeptAs(std::move(spec), *training));
            RUNNEL_ASSIGN_OR_RETURN(const std::string table, LayerTable(spec));
            RUNNEL_ASSIGN_OR_RETURN(const std::string report, TrainingReport(spec, *training));
            context.print(absl::StrCat(table, "\n", report));
            const absl::StatusOr<std::string> backends = BackendReport(spec, *training);
            context.print(backends.ok()
                              ? *backends
                              : absl::StrCat("backends: not known: ", backends.status().message()));
            return absl::OkStatus();
          }};
}

}  // namespace runnel
