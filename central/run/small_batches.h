#pragma once

#include <string>

#include "proto/base/model/model_spec.h"
#include "proto/base/training/training.h"

namespace runnel {

// A line for people where a step is cut into micro-batches that the model's batch norms are too small
// for; empty: it is not, or none of them trains. Pure function, any thread.
std::string SmallBatchNote(const ModelSpec& model, const TrainingSettings& training);

}  // namespace runnel
