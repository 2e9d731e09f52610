#pragma once

// The subcommand `runnel-worker tune`: tries which kernels are fastest on this device.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace runnel {

struct TuneFlags {
  CLI::App* command = nullptr;
  std::vector<std::string> models = {"vgg11"};
  std::string backend = "opencl";
  std::string recipe = "niti";
  int64_t batch = 64;
  double seconds = 30;                       // a model
  std::vector<std::string> backend_options;  // as BackendOptions::FromFlag reads them
};

// The result lives as long as the app.
std::shared_ptr<TuneFlags> AddTuneCommand(CLI::App& app);
// Searches anew, whatever `state_folder` has, prints the choices and keeps them there. The device
// is checked first. InvalidArgument, Unimplemented: model, recipe or backend does not fit, the
// backend has nothing to tune, or computes wrong; others as Backend::Prepare and TuningStore.
absl::Status RunTuneCommand(const TuneFlags& flags, const std::string& state_folder);

}  // namespace runnel
