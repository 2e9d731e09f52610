#pragma once

// Chooses for `--backend auto` on a device that has more than its processor.

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace runnel {

// A backend that could compute a model, measured.
struct BackendCandidate {
  std::string name;    // name for MakeBackend: "cpu", "opencl", "cpu,opencl"
  double seconds = 0;  // seconds of a micro-batch's training
  absl::Status error;  // why it has no time
};

struct BackendChoice {
  std::string name;
  std::string reason;  // one line with all times
};

// The fastest; the first one, which is the host's processor, where the others do not save a
// twentieth. candidates: not empty; the first one is taken also if it has an error.
BackendChoice ChooseFastest(const std::vector<BackendCandidate>& candidates);

}  // namespace runnel
