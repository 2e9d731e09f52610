#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

OpSpec WithBias(OpSpec op) {
  op.bias = true;
  return op;
}

}  // namespace

ModelSpec HarCnn() {
  const auto relu = [](int32_t input) { return Plain(OpKind::kRelu, input); };
  ModelSpec model;
  model.name = "har_cnn";
  model.input = {9, 128};
  model.classes = 6;
  model.layers = {
      {"conv1", {WithBias(Conv1d(0, 64, 3)), relu(1)}},
      {"conv2", {WithBias(Conv1d(0, 64, 3)), relu(1), Dropout(2, 0.6)}},
      {"pool", {MaxPool2(0), Plain(OpKind::kFlatten, 1)}},
      {"fc1", {WithBias(Linear(0, 100)), relu(1)}},
      {"fc2", {WithBias(Linear(0, 6))}},
  };
  return model;
}

TrainingDefaults HarCnnDefaults() {
  return {.batch_size = 64,
          .epochs = 10,  // the papers: 200
          .learning_rate = 0.01,
          .momentum = 0.9,
          .weight_decay = 4e-5,
          .milestones = {60, 120, 160},
          .milestone_factor = 0.2,
          .milestone_epochs = 200};
}

}  // namespace runnel::zoo
