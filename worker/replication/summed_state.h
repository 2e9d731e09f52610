#pragma once

// A copy of a stage's state with the checksums that the stage made when it copied it. They stay with
// the bytes on all ways and in all memories: whoever goes on from the copy, wherever it was kept,
// checks it against them.

#include <cstdint>
#include <vector>

#include "proto/base/model/model_state.h"

namespace runnel {

struct StateSums {
  std::vector<uint32_t> layers;  // CRC-32 of each layer's tensors and slots, in the state's order
  uint32_t encoders = 0;         // of all encoders' states
  friend bool operator==(const StateSums&, const StateSums&) = default;
};

struct SummedState {
  explicit SummedState(ModelState of);
  SummedState(ModelState of, StateSums made) : state(std::move(of)), sums(std::move(made)) {}

  ModelState state;
  StateSums sums;
};

uint32_t SumOf(const LayerState& layer);
uint32_t SumOf(const std::vector<EncoderState>& encoders);

}  // namespace runnel
