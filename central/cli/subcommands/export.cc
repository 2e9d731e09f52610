#include <memory>

#include "central/cli/subcommands/subcommand.h"

namespace runnel {
namespace {

constexpr char kExportExamples[] = R"(
Examples:
  for ONNX Runtime, OpenCV, TensorRT, ...
    runnel-central export --checkpoint-dir run1 --onnx model.onnx
    runnel-central export --quantized model.q8 --onnx model_int8.onnx
  for Python: numpy.load("weights.npz")["fc.0.weight"]
    runnel-central export --checkpoint-dir run1 --npz weights.npz)";

}  // namespace

Subcommand AddExport(const Command& program) {
  const Command app =
      program.AddCommand("export", "Write trained weights for other engines: ONNX, NumPy");
  const auto arguments = std::make_shared<ExportArguments>();
  app.Add("--checkpoint-dir", arguments->checkpoint_dir, "folder of the run's check-points");
  app.Add("--quantized", arguments->quantized,
          "INT8 model, written by runnel-central quantize: as QDQ, opset 13");
  app.Add("--onnx", arguments->onnx,
          "the model and its weights; of check-points FP32, opset 13 (with relu6 10, of tokens 17)")
      .ValueNamed("FILE");
  app.Add("--batch", arguments->batch,
          "samples at a time, where an engine reads no open batch (default: any number)")
      .Count();
  app.Add("--npz", arguments->npz, "the weights, an array a tensor").ValueNamed("FILE");
  app.Footer(kExportExamples);
  return {app, [arguments](const CommandContext& context) {
            return ExportCommand(*arguments, context);
          }};
}

}  // namespace runnel
