#pragma once

// `runnel-worker infer`: one job about a model in integers in a process of its own, for
// `runnel-central quantize` and `eval --quantized --profile` (worker/inference/inference_job.h).

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace runnel {

struct InferCommand {
  CLI::App* command = nullptr;
  std::string job;    // path
  std::string reply;  // path
  int threads = 1;
  std::vector<std::string> backend_options;  // as BackendOptions::FromFlag reads them
};

// Adds the command to the program's; --help does not show it.
std::shared_ptr<const InferCommand> AddInferCommand(CLI::App& program);
absl::Status RunInferCommand(const InferCommand& infer);

}  // namespace runnel
