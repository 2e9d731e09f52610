// The networks of MLPerf Tiny that PULP-TrainLib trains.

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

OpSpec WithBias(OpSpec op) {
  op.bias = true;
  return op;
}

// A convolution with a bias and batch norm behind it.
int32_t BiasedConv(LayerBuilder& layer, int32_t input, int64_t channels, int64_t stride) {
  return layer.Append(BatchNorm(layer.Append(WithBias(Conv2d(input, channels, 3, stride, 1, 1)))));
}

LayerSpec Block(int index, int64_t channels, int64_t stride) {
  LayerBuilder layer(absl::StrCat("block", index), kWithNorm);
  const int32_t inner = layer.Relu(BiasedConv(layer, 0, channels, stride));
  const int32_t value = BiasedConv(layer, inner, channels, 1);
  const int32_t shortcut =
      stride == 1 ? 0 : layer.Append(WithBias(Conv2d(0, channels, 1, stride, 0, 1)));
  layer.Relu(layer.Append(Add(value, shortcut)));
  return layer.Take();
}

LayerSpec Head(int64_t classes, double dropout) {
  LayerBuilder fc("fc", kWithNorm);
  const int32_t input = dropout > 0 ? fc.Append(Dropout(0, dropout)) : 0;
  fc.Append(HeadLinear(fc.Append(Plain(OpKind::kGlobalAvgPool, input)), classes, kWithNorm));
  return fc.Take();
}

}  // namespace

ModelSpec ResNet8() {
  ModelSpec model;
  model.name = "resnet8";
  model.input = {3, 32, 32};
  model.classes = 10;
  LayerBuilder first("conv1", kWithNorm);
  first.Relu(BiasedConv(first, 0, 16, 1));
  model.layers = {first.Take(), Block(1, 16, 1), Block(2, 32, 2), Block(3, 64, 2),
                  Head(model.classes, 0)};
  return model;
}

// The published network pads one frame more behind than before; this one as many on both sides.
ModelSpec DsCnn() {
  constexpr int64_t kChannels = 64;
  ModelSpec model;
  model.name = "ds_cnn";
  model.input = {1, 49, 10};
  model.classes = 12;
  LayerBuilder first("conv1", kWithNorm);
  OpSpec conv = WithBias(Conv2d(0, kChannels, 10, 2, 0, 1));
  conv.kernel = {10, 4};
  conv.padding = {5, 1};
  first.Append(Dropout(first.Relu(first.Append(BatchNorm(first.Append(conv)))), 0.2));
  model.layers.push_back(first.Take());
  for (int i = 1; i <= 4; ++i) {
    LayerBuilder layer(absl::StrCat("block", i), kWithNorm);
    const auto normed = [&](OpSpec op) {
      return layer.Relu(layer.Append(BatchNorm(layer.Append(WithBias(op)))));
    };
    normed(Conv2d(normed(Conv2d(0, kChannels, 3, 1, 1, kChannels)), kChannels, 1, 1, 0, 1));
    model.layers.push_back(layer.Take());
  }
  model.layers.push_back(Head(model.classes, 0.4));
  return model;
}

TrainingDefaults TinyDefaults() {
  TrainingDefaults defaults = CifarDefaults(kWithNorm);
  defaults.weight_decay = 1e-4;
  return defaults;
}

}  // namespace runnel::zoo
