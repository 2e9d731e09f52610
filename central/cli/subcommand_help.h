#pragma once

// Answers of the command line to people: one line for an error.

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/string_view.h"

namespace runnel {

// One line for an unreadable command line: the error and the fix. `program` is the parser that
// threw the error.
std::string CommandLineError(const CLI::App& program, const CLI::ParseError& error);

// "; did you mean NAME?" with the name that is nearest to `word`; empty if none is near.
std::string DidYouMean(absl::string_view word, const std::vector<std::string>& names);
// "--old is gone: ..." for a flag that the command had once; empty for any other.
std::string SuccessorOf(absl::string_view flag, const CLI::App& command);
// The long names of the flags of a command, with their dashes.
std::vector<std::string> FlagNames(const CLI::App& command);

}  // namespace runnel
