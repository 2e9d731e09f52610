#include <memory>
#include <utility>

#include "central/cli/subcommand.h"
#include "central/run/inference/quantize_commands.h"

namespace runnel {

Subcommand AddQuantize(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "quantize", "Make a trained model one in integers: INT8 inference without training");
  const auto flags = std::make_shared<QuantizeArguments>();
  QuantizeMethod& method = flags->method;
  app->add_option("--checkpoint-dir", flags->checkpoint_dir,
                  "folder with check-points of an fp32 run; its newest weights are taken")
      ->required();
  app->add_option("--out", flags->out, "file to write, e.g. model.q8")->required();
  app->add_option("--calibration", method.calibration,
                  "how far activations go: kl, kl:migacz (least divergence from the real "
                  "distribution), absmax, percentile:P (so many percent of the values)")
      ->capture_default_str();
  app->add_option("--scheme", method.scheme,
                  "symmetric: 0 is code 0; asymmetric: codes go from the least value to the most")
      ->check(CLI::IsMember({"symmetric", "asymmetric"}))
      ->capture_default_str();
  app->add_option("--granularity", method.granularity,
                  "weight scales: one a layer, or one an output channel")
      ->check(CLI::IsMember({"layer", "channel"}))
      ->capture_default_str();
  app->add_option_function<std::string>(
         "--fold-batch-norm",
         [flags](const std::string& text) { flags->method.fold_batch_norm = text == "on"; },
         "fold batch norms into the convolutions before them")
      ->check(CLI::IsMember({"on", "off"}))
      ->default_str("on");
  app->add_option("--winograd", method.winograd,
                  "int4_int6: all 3x3 convolutions of stride 1 but the first as F(2x2, 3x3), with "
                  "weights of 4 bits and inputs of 6; auto: only the faster ones, while the "
                  "calibration samples keep their classes")
      ->check(CLI::IsMember({"off", "int4_int6", "auto"}))
      ->capture_default_str();
  for (auto [name, layer] : {std::pair("--first-layer", &method.first_layer),
                             std::pair("--last-layer", &method.last_layer)}) {
    app->add_option(name, *layer, "fp32: this convolution or linear layer stays in FP32")
        ->check(CLI::IsMember({"int8", "fp32"}))
        ->capture_default_str();
  }
  app->add_option("--samples", method.samples, "training samples to calibrate on")
      ->check(kCountRange)
      ->capture_default_str();
  app->add_option(
      "--report", flags->report,
      "file for time and error against FP32 of each layer; it ends in .md, .json or .svg");
  app->add_option("--data-dir", flags->data_dir,
                  "folder with the data set (default: as in training)");
  return {app, [flags](const CommandContext& context) { return QuantizeCommand(*flags, context); }};
}

}  // namespace runnel
