#include <cstdint>

#include "absl/strings/str_cat.h"
#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

// A depthwise 3x3 and a 1x1 convolution.
struct Pair {
  int64_t channels;  // output channels
  int64_t stride;
};
constexpr Pair kPairs[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                           {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
constexpr int64_t kFirstChannels = 32;

LayerSpec Separable(int index, int64_t in, const Pair& pair, ConvStyle style) {
  LayerBuilder layer(absl::StrCat("block", index), style);
  const int32_t depthwise = layer.Relu(layer.Conv(0, in, 3, pair.stride, in));
  layer.Relu(layer.Conv(depthwise, pair.channels, 1, 1));
  return layer.Take();
}

ModelSpec Make(const char* name, int64_t side, int64_t classes) {
  constexpr ConvStyle style = kWithNorm;
  ModelSpec model;
  model.name = name;
  model.input = {3, side, side};
  model.classes = classes;
  LayerBuilder first("conv_first", style);
  first.Relu(first.Conv(0, kFirstChannels, 3, side > 32 ? 2 : 1));
  model.layers.push_back(first.Take());
  int64_t channels = kFirstChannels;
  int index = 1;
  for (const Pair& pair : kPairs) {
    model.layers.push_back(Separable(index++, channels, pair, style));
    channels = pair.channels;
  }
  LayerBuilder fc("fc", style);
  fc.Append(HeadLinear(fc.Append(Plain(OpKind::kGlobalAvgPool, 0)), model.classes, style));
  model.layers.push_back(fc.Take());
  return model;
}

}  // namespace

ModelSpec MobileNetV1() { return Make("mobilenet_v1", 32, 10); }
ModelSpec MobileNetV1For128() { return Make("mobilenet_v1_128", 128, 11); }
ModelSpec MobileNetV1ImageNet() { return Make("mobilenet_v1_imagenet", 224, 1000); }

}  // namespace runnel::zoo
