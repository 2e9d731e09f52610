#pragma once

// `runnel-central predict`: what a trained model says of samples, as lines or as a file.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/run/commands/commands.h"

namespace runnel {

// Either a folder of check-points or a model in integers.
struct PredictArguments {
  std::string checkpoint_dir;
  std::string quantized;
  // Samples without labels (Dataset::Unlabelled): files and folders, or `data`, one of them with its
  // kind, "npy:FILE". Neither: the data set's test.
  std::vector<std::string> files;
  std::string data;
  std::optional<std::string> data_dir;
  // .csv: a class and its probability a sample; .npy: all outputs of the model. Empty: a line a
  // sample on the screen, its likeliest classes.
  std::string out;
  std::string backend;  // empty: that of the training
};
// Errors name the flag or file; then nothing is written.
absl::Status PredictCommand(const PredictArguments& arguments, const CommandContext& context);

}  // namespace runnel
