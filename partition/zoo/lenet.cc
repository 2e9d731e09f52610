#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {

ModelSpec LeNet() {
  const auto relu = [](int32_t input) { return Plain(OpKind::kRelu, input); };
  ModelSpec model;
  model.name = "lenet";
  model.input = {1, 28, 28};
  model.classes = 10;
  model.layers = {
      {"conv1", {Conv2d(0, 20, 5, 1, 0, 1), relu(1)}},
      {"pool1", {MaxPool2(0)}},
      {"conv2", {Conv2d(0, 50, 5, 1, 0, 1), relu(1)}},
      {"pool2", {MaxPool2(0), Plain(OpKind::kFlatten, 1)}},
      {"fc1", {Linear(0, 500), relu(1)}},
      {"fc2", {Linear(0, 10)}},
  };
  // NITI and Mandheling train this network from Xavier's normal draws.
  for (LayerSpec& layer : model.layers) {
    for (OpSpec& op : layer.ops) op.init = InitKind::kXavierNormal;
  }
  return model;
}

TrainingDefaults LeNetDefaults() {
  // The drop after two epochs: at a constant rate of 0.01 the last few batches of an epoch move
  // MNIST's accuracy by half a point either way.
  return {.batch_size = 64,
          .epochs = 3,
          .learning_rate = 0.01,
          .momentum = 0.9,
          .weight_decay = 5e-4,
          .milestones = {2},
          .milestone_epochs = 3};
}

}  // namespace runnel::zoo
