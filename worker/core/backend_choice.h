#pragma once

// What `--backend auto` takes on a device that has more than its processor.

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace runnel {

// One that could compute a model, measured.
struct BackendCandidate {
  std::string name;    // as of MakeBackend: "cpu", "opencl", "cpu,opencl"
  double seconds = 0;  // of a micro-batch's training
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
