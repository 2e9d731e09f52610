#pragma once

// How a model is trained where the user says nothing. A fact of central's tables of models
// (partition/zoo/zoo.h), not of the model: workers do not need it, and another default leaves
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
