#pragma once

// The frozen front of a model, and the whole of it, on samples of a data set: by a worker process on
// this host, since central has no kernels.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "central/data/dataset.h"
#include "central/data/latents/latent_set.h"
#include "central/records/checkpoint.h"

namespace runnel {

// On the calling thread, which must live as long as the processes.
class Front {
 public:
  // layer: the first one that is not part of it. `whole` is borrowed: the front's weights never
  // change.
  Front(const Checkpoint& whole, int layer) : whole_(whole), layer_(layer) {}

  // Adds the latents of these samples, each of which goes through the front once. Errors as
  // RunInferenceProcess and LatentSet::Add.
  absl::Status AddLatents(const Dataset& data, absl::Span<const int64_t> indices, LatentSet& to);
  // Samples that have gone through.
  int64_t samples() const { return samples_; }

 private:
  const Checkpoint& whole_;
  const int layer_;
  int64_t samples_ = 0;
};

// How many samples of a class are right.
struct ClassTally {
  int64_t samples = 0;
  int64_t correct = 0;
};

// Of each class of `classes` the whole model's, on all samples of the data set; the others are zeros.
absl::StatusOr<std::vector<ClassTally>> EvaluateClasses(const Checkpoint& whole,
                                                        const Dataset& data,
                                                        const std::vector<bool>& classes);

// What the whole model gives for a sample, before any softmax: one number a class; of several labels
// for Dataset::predicted_label. `first`: the first sample of these; `outputs` lie in the order of the
// samples.
using UseOutputsFn = std::function<absl::Status(int64_t first, absl::Span<const float> outputs)>;
// Of all samples of the data set, in order, as many at a time as fit a job. A model in integers is
// that of QuantizedStages with recipe kInt8Inference. Errors as RunInferenceProcess, and those of use.
absl::Status ComputeOutputs(const Checkpoint& whole, const Dataset& data, const UseOutputsFn& use);

}  // namespace runnel
