#pragma once

// The options of a gate (OpKind::kGate), and what a held one draws: known to whoever computes, and to
// central, which claims what was computed. Pure functions; any thread.

#include <cstdint>
#include <vector>

#include "proto/base/ids.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/random.h"
#include "proto/base/training/grid_bits.h"

namespace runnel {

inline int OptionCount(const OpSpec& gate) { return static_cast<int>(gate.options.size() / 2); }
// Samples of an option without bits skip.
inline bool Skips(const OpSpec& gate, int option) {
  return gate.options[2 * static_cast<size_t>(option)] == 0;
}
// 0/0 of an option in full: the recipe's own bits.
inline GridBits BitsOfOption(const OpSpec& gate, int option) {
  const auto at = 2 * static_cast<size_t>(option);
  if (gate.options[at] == 32) return {};
  return {gate.options[at], gate.options[at + 1]};
}

inline CounterRandom GateDraws(uint64_t run_seed, int layer, Sequence sequence) {
  return {run_seed, RandomPurpose::kGate, static_cast<uint64_t>(layer),
          static_cast<uint64_t>(sequence.value())};
}
// The option that a held gate draws for a sample of the micro-batch: draw 2i says whether it skips,
// draw 2i + 1 which of the others it takes.
inline int HeldOption(const OpSpec& gate, const CounterRandom& draws, int64_t sample) {
  const auto element = 2 * static_cast<uint64_t>(sample);
  const bool skips = static_cast<double>(draws.Uniform(element)) < gate.rate;
  std::vector<int> those;
  for (int option = 0; option < OptionCount(gate); ++option) {
    if (Skips(gate, option) == skips) those.push_back(option);
  }
  return those[draws.Below(element + 1, static_cast<uint32_t>(those.size()))];
}

}  // namespace runnel
