#pragma once

// What the gates of a model did in a run, as the summary has it.

#include <cstdint>
#include <string>
#include <vector>

#include "proto/base/training/precision/precision_cost.h"

namespace runnel {

struct GateSummary {
  struct Gate {
    std::string layer;
    std::vector<std::string> options;  // "0", "4/6", ...
    std::vector<int64_t> samples;      // by option
    double skipped_share = 0;
    double mean_bits = 0;  // of weights and activations, of the samples that do not skip
    // Multiply-adds of these samples, by option, without exploring; at a run's end alone.
    std::vector<PassMacs> effective = {};
  };
  struct Target {
    double percent = 0;       // the target
    int64_t samples = 0;      // trained with it
    double mean_percent = 0;  // their cost
    double last_percent = 0;  // of those in front of its last barrier
  };

  int64_t samples = 0;  // that were trained, in front of the last barrier
  // Shares of what all samples would take in FP32, of all layers, exploring included.
  double done_share = 0;       // multiply-adds, counted by the kernels
  double effective_share = 0;  // with a product of a by b bits counted as a/32 * b/32
  double skipped_share = 0;    // mean of the gates
  std::vector<Gate> gates;
  std::vector<Target> targets;  // without --cost-target none
  int64_t turns = 0;            // of the target
};

// "gates did 41.2 % of the multiply-adds ...", for people.
std::string GateText(const GateSummary& gates);

}  // namespace runnel
