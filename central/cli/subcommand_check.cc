#include <memory>
#include <string>

#include "central/cli/subcommand.h"
#include "central/run/own_model.h"
#include "central/run/sessions/latent_layer.h"
#include "proto/base/status_macros.h"

namespace runnel {

Subcommand AddCheck(const Command& program) {
  const Command app = program.AddCommand(
      "check", "Print for each layer what a latent before it takes, and what is behind it");
  const auto model = std::make_shared<std::string>();
  app.Add("MODEL", *model, "a model of the zoo (train --help lists them), json:FILE or onnx:FILE")
      .Required();
  app.Footer(R"(
Examples:
  from which layer on to learn (runnel-central learn --at)
    runnel-central check resnet8)");
  return {app, [model](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const ModelSpec spec, ModelNamed(*model));
            RUNNEL_ASSIGN_OR_RETURN(const std::string table, LayerTable(spec));
            context.print(table);
            return absl::OkStatus();
          }};
}

}  // namespace runnel
