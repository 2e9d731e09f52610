#include <memory>

#include "central/cli/subcommands/subcommand.h"
#include "central/run/sessions/predict_command.h"

namespace runnel {
namespace {

constexpr char kPredictExamples[] = R"(
Examples:
  what is on pictures, by a model that was trained on images
    runnel-central predict cat.jpg new/ --checkpoint-dir run1
  the class of each picture in a folder
    runnel-central predict new --checkpoint-dir run1 --out classes.csv
  all outputs of a model in integers, for numpy.load
    runnel-central predict new.npy --quantized model.q8 --out outputs.npy)";

}  // namespace

Subcommand AddPredict(const Command& program) {
  const Command app = program.AddCommand(
      "predict", "Say what a trained model says of samples: their classes, or all its outputs");
  const auto arguments = std::make_shared<PredictArguments>();
  app.Add("FILE", arguments->files,
          "samples without labels, of the kind that the model was trained on: pictures and folders "
          "of them, tables (.csv), arrays (.npy) (default: the data set's test)");
  app.Add("--checkpoint-dir", arguments->checkpoint_dir, "folder with check-points");
  app.Add("--quantized", arguments->quantized, "INT8 model, written by runnel-central quantize");
  app.Add("--data", arguments->data,
          "in place of FILE, one with its kind: npy:FILE, images:FOLDER, csv:FILE");
  app.Add("--data-dir", arguments->data_dir, "folder with the data set (default: as in training)");
  app.Add("--out", arguments->out,
          "file to write: .csv has a class and its probability a line, .npy all outputs (default: "
          "a line a sample on the screen)")
      .ValueNamed("FILE");
  app.Add("--backend", arguments->backend,
          "what computes, of runnel-worker --check (default: as in training)");
  app.Footer(kPredictExamples);
  return {app, [arguments](const CommandContext& context) {
            return PredictCommand(*arguments, context);
          }};
}

}  // namespace runnel
