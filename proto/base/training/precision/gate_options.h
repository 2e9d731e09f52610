#pragma once

// The options of a gate (OpKind::kGate), what each costs, and what a gate draws: known to whoever
// computes, and to central, which claims what held gates computed. Pure functions; any thread.

#include <algorithm>
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

// The operator computes logits of a gate that learns: neither on a grid nor by samples.
inline bool LeadsToGate(const LayerSpec& layer, size_t op) {
  const auto goes_on = [](OpKind kind) {
    return kind == OpKind::kLinear || kind == OpKind::kRelu || kind == OpKind::kConcat ||
           kind == OpKind::kLstmCell || kind == OpKind::kSlice;
  };
  auto value = static_cast<int32_t>(op) + 1;
  for (size_t reader = op + 1; reader < layer.ops.size(); ++reader) {
    const OpSpec& spec = layer.ops[reader];
    if (std::find(spec.inputs.begin(), spec.inputs.end(), value) == spec.inputs.end()) continue;
    if (spec.kind == OpKind::kGate) return !spec.held;
    if (goes_on(spec.kind)) {
      value = static_cast<int32_t>(reader) + 1;
    } else if (spec.inputs.size() == 1) {
      return false;
    }
  }
  return false;
}

// Effective multiply-adds of a sample's three passes, in those of FP32: a product of a bits by b
// bits is a/32 * b/32 of one.
inline double CostOfOption(const OpSpec& gate, int option) {
  const auto at = 2 * static_cast<size_t>(option);
  const double forward = gate.options[at] / 32.0, backward = gate.options[at + 1] / 32.0;
  return (forward * forward + 2 * forward * backward) / 3;
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

// The share of micro-batches in which a gate that learns explores: its block computes one more option
// for each sample. Their draws are 0, and 1 + i for sample i.
inline constexpr double kExploredShare = 1.0 / 8;
inline constexpr int kNothingExplored = -1;
struct Explored {
  int option = kNothingExplored;
  double weight = 0;  // of its gradient: 1 / the probability with which the option is computed
};
inline bool Explores(const CounterRandom& draws) {
  return static_cast<double>(draws.Uniform(0)) < kExploredShare;
}
// The option beside the chosen one, of those that run. To skip is known without computing it.
inline Explored ExploredOption(const OpSpec& gate, const CounterRandom& draws, int64_t sample,
                               int chosen) {
  std::vector<int> others;
  for (int option = 0; option < OptionCount(gate); ++option) {
    if (option != chosen && !Skips(gate, option)) others.push_back(option);
  }
  if (others.empty()) return {};
  const auto count = static_cast<uint32_t>(others.size());
  return {others[draws.Below(static_cast<uint64_t>(sample) + 1, count)], count / kExploredShare};
}

}  // namespace runnel
