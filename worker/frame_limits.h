#pragma once

// Limits of a stage's incoming frames: the largest payload by kind and micro-batch size, checked
// before allocation (exact sizes are the decoder's check).

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "proto/transport/link/frame.h"

namespace runnel {

struct StageFrameSizes {
  struct BySamples {
    int64_t samples = 0;
    int64_t input = 0;  // first stage: bytes of the samples, else of an evaluation's activation
    int64_t activation = 0;  // most encoded bytes of the stage's input, over all epochs
    int64_t gradient = 0;    // most encoded bytes of the gradient of its output
    // Not encoded, as a dry run's first passes send them.
    int64_t raw_activation = 0;
    int64_t raw_gradient = 0;
  };
  bool first_stage = false;
  int64_t labels_per_sample = 0;  // 0: none come, the loss is elsewhere
  bool clips = false;             // sums of squares come
  int64_t replica_piece = 0;      // a piece of a neighbour's state; 0: none comes
  std::vector<BySamples> by_samples;
};

// Limits for FrameLimits::Set. Kinds that do not belong at this stage are absent: their limit is 0.
std::map<std::pair<FrameKind, uint32_t>, uint64_t> AllowedPayloads(const StageFrameSizes& sizes);

}  // namespace runnel
