#pragma once

#include <memory>

#include "CLI/CLI.hpp"

namespace runnel {

// Of --help: breaks descriptions into lines beside the column of the flags.
std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter();

}  // namespace runnel
