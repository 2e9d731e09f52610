#include <memory>
#include <string>
#include <utility>

#include "central/cli/subcommands/subcommand.h"
#include "central/run/inference/quantize_commands.h"

namespace runnel {

Subcommand AddQuantize(const Command& program) {
  const Command app = program.AddCommand(
      "quantize", "Make a trained model one in integers: INT8 inference without training");
  const auto flags = std::make_shared<QuantizeArguments>();
  QuantizeMethod& method = flags->method;
  app.Add("--checkpoint-dir", flags->checkpoint_dir,
          "folder with check-points of an fp32 run; its newest weights are taken")
      .Required();
  app.Add("--out", flags->out, "file to write, e.g. model.q8").Required();
  app.Add("--calibration", method.calibration,
          "how far activations go: kl, kl:migacz (least divergence from the real "
          "distribution), absmax, percentile:P (so many percent of the values)")
      .ShowDefault();
  app.Add("--scheme", method.scheme,
          "symmetric: 0 is code 0; asymmetric: codes go from the least value to the most")
      .OneOf({"symmetric", "asymmetric"})
      .ShowDefault();
  app.Add("--granularity", method.granularity,
          "weight scales: one a layer, or one an output channel")
      .OneOf({"layer", "channel"})
      .ShowDefault();
  const auto fold_batch_norm = std::make_shared<std::string>("on");
  app.Add("--fold-batch-norm", *fold_batch_norm,
          "fold batch norms into the convolutions before them")
      .OneOf({"on", "off"})
      .ShowDefault();
  app.Add("--winograd", method.winograd,
          "int4_int6: all 3x3 convolutions of stride 1 but the first as F(2x2, 3x3), with "
          "weights of 4 bits and inputs of 6; auto: only the faster ones, while the "
          "calibration samples keep their classes")
      .OneOf({"off", "int4_int6", "auto"})
      .ShowDefault();
  for (auto [name, layer] : {std::pair("--first-layer", &method.first_layer),
                             std::pair("--last-layer", &method.last_layer)}) {
    app.Add(name, *layer, "fp32: this convolution or linear layer stays in FP32")
        .OneOf({"int8", "fp32"})
        .ShowDefault();
  }
  app.Add("--samples", method.samples, "training samples to calibrate on").Count().ShowDefault();
  app.Add("--report", flags->report,
          "file for time and error against FP32 of each layer; it ends in .md, .json or .svg");
  app.Add("--data-dir", flags->data_dir, "folder with the data set (default: as in training)");
  app.Footer(R"(
Examples:
  INT8 of the newest weights, and what it costs in accuracy
    runnel-central quantize --checkpoint-dir run1 --out model.q8
    runnel-central eval --quantized model.q8
  with time and error of each layer
    runnel-central quantize --checkpoint-dir run1 --out model.q8 --report layers.json)");
  return {app, [flags, fold_batch_norm](const CommandContext& context) {
            flags->method.fold_batch_norm = *fold_batch_norm == "on";
            return QuantizeCommand(*flags, context);
          }};
}

}  // namespace runnel
