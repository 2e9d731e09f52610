#pragma once

// The subcommand `runnel-worker program`: which processor would run which instruction of a model.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace runnel {

struct ProgramFlags {
  CLI::App* command = nullptr;
  std::string model;
  std::string recipe = "niti";
  std::string gates = "off";
  std::string processors = "cpu";
  int64_t batch = 64;
  int threads = 1;
  std::vector<std::string> switch_ms;  // "hexagon=25"
  bool counted = false;
  std::string precision = "recipe";
  std::string rescale = "dynamic";
  std::string batch_split = "off";
  std::vector<std::string> backend_options;  // as BackendOptions::FromFlag reads them
};

// The result lives as long as the app.
std::shared_ptr<ProgramFlags> AddProgramCommand(CLI::App& app);
// Prints the listing. GPUs and DSPs that are measured are checked first, as by BackendVerdicts of
// `state_folder`. InvalidArgument, Unimplemented: the model, recipe or a processor does not fit, or
// a processor computes wrong.
absl::Status RunProgramCommand(const ProgramFlags& flags, const std::string& state_folder);

}  // namespace runnel
