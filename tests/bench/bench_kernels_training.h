#pragma once

// Training steps of both sides on the same samples: forward, backward and update. One thread owns a
// trainer; the backend may have more.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/model/model_spec.h"

namespace runnel::bench {

// Fixed noise and labels for a model.
struct Samples {
  Samples(const ModelSpec& model, int64_t batch_size);

  int64_t batch;
  std::vector<float> x;
  std::vector<int32_t> labels;
};

class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual absl::Status Step() = 0;
};

// A worker's plain loop over the whole model on one of our backends, from central's first weights;
// `recipe` is "fp32" or an integer one. Copies the samples. Unimplemented if the backend does not
// have the recipe's instructions.
absl::StatusOr<std::unique_ptr<Trainer>> MakeTrainer(const ModelSpec& model,
                                                     const std::string& recipe,
                                                     const std::string& backend, int threads,
                                                     const Samples& samples);

}  // namespace runnel::bench
