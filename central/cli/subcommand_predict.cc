#include <memory>

#include "central/cli/subcommand.h"
#include "central/run/sessions/predict_command.h"

namespace runnel {
namespace {

constexpr char kPredictExamples[] = R"(
Examples:
  the class of each picture in a folder, by a model that was trained on images:
    runnel-central predict --checkpoint-dir run1 --data images:new --out classes.csv
  all outputs of a model in integers, for numpy.load
    runnel-central predict --quantized model.q8 --data npy:new.npy --out outputs.npy)";

}  // namespace

Subcommand AddPredict(const Command& program) {
  const Command app = program.AddCommand(
      "predict", "Write what a trained model says of samples: their classes, or all its outputs");
  const auto arguments = std::make_shared<PredictArguments>();
  app.Add("--checkpoint-dir", arguments->checkpoint_dir, "folder with check-points");
  app.Add("--quantized", arguments->quantized, "INT8 model, written by runnel-central quantize");
  app.Add("--data", arguments->data,
          "samples without labels, of the kind that the model was trained on: npy:FILE, "
          "images:FOLDER, csv:FILE (default: the data set's test)");
  app.Add("--data-dir", arguments->data_dir, "folder with the data set (default: as in training)");
  app.Add("--out", arguments->out,
          "file to write: .csv has a class and its probability a line, .npy all outputs")
      .Required()
      .ValueNamed("FILE");
  app.Footer(kPredictExamples);
  return {app, [arguments](const CommandContext& context) {
            return PredictCommand(*arguments, context);
          }};
}

}  // namespace runnel
