#pragma once

// What the blocks behind a model's gates cost (FracTrain's cp): the effective multiply-adds of the
// options that samples took (CostOfOption), in % of those of all these blocks in FP32. Exploring is
// not in it, nor what lies outside of the blocks.

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

// Immutable.
class GateCost {
 public:
  // Errors as InferShapes.
  static absl::StatusOr<GateCost> Of(const ModelSpec& model);

  // What the gate of this layer adds to the cost of a micro-batch with so many samples by option.
  double Percent(int layer, absl::Span<const int64_t> samples) const;
  // The cost when all samples take the first option of each gate, and the last.
  double least_percent() const { return least_percent_; }
  double most_percent() const { return most_percent_; }
  // Some gate learns.
  bool learns() const { return learns_; }

 private:
  struct Gate {
    OpSpec spec;
    double percent = 0;  // of all gates' blocks in FP32
  };

  std::map<int, Gate> gates_;  // by layer
  double least_percent_ = 0;
  double most_percent_ = 0;
  bool learns_ = false;
};

}  // namespace runnel
