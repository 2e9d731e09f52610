#pragma once

// `runnel-central quantize` and `eval --quantized`: a trained model in integers.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "central/records/quantized_model.h"
#include "central/run/commands/commands.h"

namespace runnel {

struct QuantizeArguments {
  std::string checkpoint_dir;
  std::string out;
  std::optional<std::string> data_dir;
  QuantizeMethod method;
  std::string report;  // path of a layer report; or empty
};
// Writes the newest weights of a check-point folder as integers, calibrated on training samples.
absl::Status QuantizeCommand(const QuantizeArguments& arguments, const CommandContext& context);

struct EvalQuantizedArguments {
  std::string quantized;
  std::optional<std::string> data_dir;
  std::string summary;
  std::string profile;   // path of a layer report; or empty
  RunSettings pipeline;  // its stages, as ForStages says
};
// Accuracy of such a model on the test set: the same bits from any number of stages.
absl::Status EvalQuantizedCommand(const EvalQuantizedArguments& arguments,
                                  const CommandContext& context);

}  // namespace runnel
