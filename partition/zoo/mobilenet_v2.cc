#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

// Differences between the two published versions.
struct Variant {
  const char* name;
  OpKind activation;
  InitKind conv_init;
  InitKind linear_init;
  int64_t first_stride;
  // strides of each group's first block; the others have stride 1
  std::array<int64_t, 7> group_strides;
  bool expands_by_one;      // the first block has its 1x1 convolution although it widens nothing
  bool projects_shortcuts;  // a 1x1 convolution where stride is 1 and the width changes
};

struct Group {
  int64_t expansion;
  int64_t channels;
  int blocks;
};
constexpr Group kGroups[7] = {{1, 16, 1}, {6, 24, 2},  {6, 32, 3}, {6, 64, 4},
                              {6, 96, 3}, {6, 160, 3}, {6, 320, 1}};

LayerSpec Stem(const Variant& variant, const char* name, int64_t channels, int64_t kernel,
               int64_t stride) {
  LayerBuilder layer(name, {variant.conv_init});
  layer.Append(Plain(variant.activation, layer.Conv(0, channels, kernel, stride)));
  return layer.Take();
}

// Inverted residual: 1x1 up, 3x3 depthwise, 1x1 down without activation, shortcut.
LayerSpec Block(const Variant& variant, int index, int64_t in, int64_t out, int64_t expansion,
                int64_t stride) {
  LayerBuilder layer(absl::StrCat("block", index), {variant.conv_init});
  const int64_t hidden = in * expansion;
  int32_t value = 0;
  if (expansion != 1 || variant.expands_by_one) {
    value = layer.Append(Plain(variant.activation, layer.Conv(value, hidden, 1, 1)));
  }
  value = layer.Append(Plain(variant.activation, layer.Conv(value, hidden, 3, stride, hidden)));
  value = layer.Conv(value, out, 1, 1);
  if (stride == 1 && in == out) {
    layer.Append(Add(value, 0));
  } else if (stride == 1 && variant.projects_shortcuts) {
    layer.Append(Add(value, layer.Conv(0, out, 1, 1)));
  }
  return layer.Take();
}

LayerSpec Head(const Variant& variant) {
  LayerBuilder layer("fc", {variant.conv_init});
  OpSpec linear = Linear(layer.Append(Plain(OpKind::kGlobalAvgPool, 0)), 10);
  linear.bias = true;
  linear.init = variant.linear_init;
  linear.init_std = 0.01;
  layer.Append(std::move(linear));
  return layer.Take();
}

ModelSpec Make(const Variant& variant) {
  ModelSpec model;
  model.name = variant.name;
  model.input = {3, 32, 32};
  model.classes = 10;
  model.layers.push_back(Stem(variant, "conv_first", 32, 3, variant.first_stride));
  int64_t channels = 32;
  int index = 1;
  for (int group = 0; group < 7; ++group) {
    for (int i = 0; i < kGroups[group].blocks; ++i) {
      model.layers.push_back(Block(variant, index++, channels, kGroups[group].channels,
                                   kGroups[group].expansion,
                                   i == 0 ? variant.group_strides[group] : 1));
      channels = kGroups[group].channels;
    }
  }
  model.layers.push_back(Stem(variant, "conv_last", 1280, 1, 1));
  model.layers.push_back(Head(variant));
  return model;
}

}  // namespace

ModelSpec MobileNetV2() {
  return Make({.name = "mobilenet_v2",
               .activation = OpKind::kRelu6,
               .conv_init = InitKind::kNormalFanOut,
               .linear_init = InitKind::kNormal,
               .first_stride = 2,
               .group_strides = {1, 2, 2, 2, 1, 2, 1},
               .expands_by_one = false,
               .projects_shortcuts = false});
}

ModelSpec MobileNetV2S1() {
  return Make({.name = "mobilenet_v2_s1",
               .activation = OpKind::kRelu,
               .conv_init = InitKind::kUniformFanIn,
               .linear_init = InitKind::kUniformFanIn,
               .first_stride = 1,
               .group_strides = {1, 1, 2, 2, 1, 2, 1},
               .expands_by_one = true,
               .projects_shortcuts = true});
}

TrainingDefaults MobileNetV2Defaults() {
  return {.batch_size = 128,
          .epochs = 2,  // the papers: 200 and 300
          .learning_rate = 0.1,
          .momentum = 0.9,
          .weight_decay = 4e-5,
          .milestones = {130, 160, 175, 185},
          .milestone_factor = 0.1,
          .milestone_epochs = 200,
          .short_rate = "one_cycle"};
}

}  // namespace runnel::zoo
