#pragma once

// Inputs and labels that have arrived, each until its micro-batch begins.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "proto/base/tensor/payload.h"

namespace runnel {

// One thread.
class Arrivals {
 public:
  struct Batch {
    Payload input;
    Payload labels;
  };

  void AddInput(int64_t sequence, Payload input) { inputs_[sequence] = std::move(input); }
  void AddLabels(int64_t sequence, Payload labels) { labels_[sequence] = std::move(labels); }
  // Nothing as long as a part of the micro-batch is not there.
  std::optional<Batch> Take(int64_t sequence, bool has_labels) {
    const auto input = inputs_.find(sequence);
    const auto labels = has_labels ? labels_.find(sequence) : labels_.end();
    if (input == inputs_.end() || (has_labels && labels == labels_.end())) return std::nullopt;
    Batch taken{std::move(input->second), {}};
    inputs_.erase(input);
    if (has_labels) {
      taken.labels = std::move(labels->second);
      labels_.erase(labels);
    }
    return taken;
  }

  // That wait for their micro-batch.
  int64_t inputs() const { return static_cast<int64_t>(inputs_.size()); }

 private:
  std::map<int64_t, Payload> inputs_;  // by sequence
  std::map<int64_t, Payload> labels_;
};

}  // namespace runnel
