#pragma once

// `runnel-central predict`: what a trained model says of samples, as a file.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "central/run/commands/commands.h"

namespace runnel {

// Either a folder of check-points or a model in integers.
struct PredictArguments {
  std::string checkpoint_dir;
  std::string quantized;
  std::string data;  // samples without labels (Dataset::Unlabelled); empty: the data set's test
  std::optional<std::string> data_dir;
  std::string out;  // .csv: a class and its probability a sample; .npy: all outputs of the model
};
// Errors name the flag or file; then nothing is written.
absl::Status PredictCommand(const PredictArguments& arguments, const CommandContext& context);

}  // namespace runnel
