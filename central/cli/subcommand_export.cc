#include <memory>

#include "central/cli/subcommand.h"

namespace runnel {
namespace {

constexpr char kExportExamples[] = R"(
Examples:
  for ONNX Runtime, OpenCV, TensorRT, ...
    runnel-central export --checkpoint-dir run1 --onnx model.onnx
  for Python: numpy.load("weights.npz")["fc.0.weight"]
    runnel-central export --checkpoint-dir run1 --npz weights.npz)";

}  // namespace

Subcommand AddExport(const Command& program) {
  const Command app =
      program.AddCommand("export", "Write trained weights for other engines: ONNX, NumPy");
  const auto arguments = std::make_shared<ExportArguments>();
  app.Add("--checkpoint-dir", arguments->checkpoint_dir, "folder of the run's check-points")
      .Required();
  app.Add("--onnx", arguments->onnx, "the model and its weights, opset 13, FP32")
      .ValueNamed("FILE");
  app.Add("--npz", arguments->npz, "the weights, an array a tensor").ValueNamed("FILE");
  app.Footer(kExportExamples);
  return {app, [arguments](const CommandContext& context) {
            return ExportCommand(*arguments, context);
          }};
}

}  // namespace runnel
