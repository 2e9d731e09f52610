#include "partition/zoo/layer_builder.h"

namespace runnel::zoo {

OpSpec HeadLinear(int32_t input, int64_t out_features, ConvStyle style) {
  OpSpec linear = Linear(input, out_features);
  linear.bias = style.batch_norm;
  linear.init = style.batch_norm ? InitKind::kNormal : style.init;
  linear.init_std = 0.01;
  return linear;
}

TrainingDefaults CifarDefaults(ConvStyle style) {
  TrainingDefaults defaults;
  defaults.batch_size = 64;
  defaults.epochs = 10;  // the papers: 150 to 200
  defaults.learning_rate = style.batch_norm ? 0.05 : 0.01;
  defaults.momentum = 0.9;
  defaults.weight_decay = 5e-4;
  defaults.milestones = {100, 150};
  defaults.milestone_epochs = 200;
  if (style.batch_norm) defaults.short_rate = "one_cycle";
  return defaults;
}

TrainingDefaults ImageNetDefaults(ConvStyle style) {
  TrainingDefaults defaults;
  defaults.batch_size = 64;
  defaults.epochs = 90;
  defaults.learning_rate = style.batch_norm ? 0.025 : 0.01;
  defaults.momentum = 0.9;
  defaults.weight_decay = style.batch_norm ? 1e-4 : 5e-4;
  defaults.milestones = {30, 60};
  defaults.milestone_epochs = 90;
  return defaults;
}

}  // namespace runnel::zoo
