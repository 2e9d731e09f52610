#pragma once

// The subcommand `runnel-worker numbers TYPE`: how numbers become elements of a number type.

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace runnel {

struct NumbersFlags {
  CLI::App* command = nullptr;
  std::string type;
};

// The result lives as long as the app.
std::shared_ptr<NumbersFlags> AddNumbersCommand(CLI::App& app);
// Reads lines of numbers from standard input and prints a line `value code decoded` for each number.
// InvalidArgument: an unknown type, one that no FP32 becomes, or a word that is no number.
absl::Status RunNumbersCommand(const NumbersFlags& flags);

}  // namespace runnel
