#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "central/cli/subcommands/subcommand.h"
#include "central/run/own_model.h"
#include "partition/import/model_json.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr char kShowExamples[] = R"(
Examples:
  a model of the zoo as a file to begin one's own from
    runnel-central show lenet > mine.json
  whether one's own is right; then train it
    runnel-central show json:mine.json
    runnel-central train --model json:mine.json --data images:pictures)";

}  // namespace

Subcommand AddShow(const Command& program) {
  const Command app = program.AddCommand("show", "Print a model as JSON, a layer a line");
  const auto model = std::make_shared<std::string>();
  app.Add("MODEL", *model, "a model of the zoo (train --help lists them), json:FILE or onnx:FILE")
      .Required();
  app.Footer(kShowExamples);
  return {app, [model](const CommandContext& context) -> absl::Status {
            RUNNEL_ASSIGN_OR_RETURN(const ModelSpec spec, ModelNamed(*model));
            std::string text = ModelToJson(spec);
            text.pop_back();  // print ends the line
            context.print(text);
            return absl::OkStatus();
          }};
}

}  // namespace runnel
