#pragma once

// Answers to command lines that cannot be read: one line each.

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/string_view.h"

namespace runnel {

// What a program says of a flag that the command does not take; empty: nothing of its own.
using FlagAnswer = std::function<std::string(absl::string_view flag, const CLI::App& command)>;

// The error and the fix. `program` is the parser that threw the error.
std::string CommandLineError(const CLI::App& program, const CLI::ParseError& error,
                             const FlagAnswer& answer = nullptr);

// "; did you mean NAME?" with the name that is nearest to `word`; empty if none is near.
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& names);
// The long names of the flags of a command, with their dashes.
std::vector<std::string> FlagNames(const CLI::App& command);

}  // namespace runnel
