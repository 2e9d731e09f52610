#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

// `before`, then a linear layer with a ReLU behind it.
LayerSpec Hidden(const char* name, std::vector<OpSpec> before, int64_t features) {
  const auto input = static_cast<int32_t>(before.size());
  before.push_back(Linear(input, features));
  before.push_back(Plain(OpKind::kRelu, input + 1));
  return {name, std::move(before)};
}

}  // namespace

ModelSpec Mlp() {
  ModelSpec model;
  model.name = "mlp";
  model.input = {16};
  model.classes = 2;
  model.layers = {Hidden("fc1", {Plain(OpKind::kFlatten, 0)}, 128),
                  Hidden("fc2", {}, 64),
                  {"fc3", {Linear(0, 2)}}};
  // As LeNet, so that integer recipes train it too: no bias, Xavier's draws.
  for (LayerSpec& layer : model.layers) {
    for (OpSpec& op : layer.ops) op.init = InitKind::kXavierNormal;
  }
  return model;
}

TrainingDefaults MlpDefaults() {
  return {.batch_size = 32,
          .epochs = 20,
          .learning_rate = 0.02,
          .momentum = 0.9,
          .weight_decay = 1e-4,
          .milestones = {15},
          .milestone_epochs = 20};
}

}  // namespace runnel::zoo
