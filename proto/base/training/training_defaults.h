#pragma once

// Default training settings of a model. They belong to central's tables of models
// (partition/zoo/zoo.h), not to the model: workers do not need them, and changed defaults leave
// check-points and journals valid.

#include <cstdint>
#include <vector>

namespace runnel {

struct TrainingDefaults {
  int64_t batch_size = 64;
  int64_t epochs = 3;
  double learning_rate = 0.01;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  // Epochs at whose start the rate is multiplied by milestone_factor.
  std::vector<int64_t> milestones;
  double milestone_factor = 0.1;

  friend bool operator==(const TrainingDefaults&, const TrainingDefaults&) = default;
};

}  // namespace runnel
