#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

using Depths = std::array<int, 4>;  // basic blocks by group
constexpr Depths k18 = {2, 2, 2, 2};
constexpr Depths k34 = {3, 4, 6, 3};
constexpr std::array<int64_t, 4> kWidths = {64, 128, 256, 512};

LayerSpec Stem(bool imagenet, ConvStyle style) {
  LayerBuilder layer("conv1", style);
  if (imagenet) {
    layer.Append(MaxPool3(layer.Relu(layer.Conv(0, 64, 7, 2))));
  } else {
    layer.Relu(layer.Conv(0, 64, 3, 1));
  }
  return layer.Take();
}

// Two 3x3 convolutions and the shortcut, which is a 1x1 convolution where the shape changes.
LayerSpec BasicBlock(int group, int index, ConvStyle style) {
  LayerBuilder layer(absl::StrCat("block", group + 1, "_", index + 1), style);
  const int64_t width = kWidths[group];
  const bool changes = group > 0 && index == 0;
  const int64_t stride = changes ? 2 : 1;
  const int32_t inner = layer.Relu(layer.Conv(0, width, 3, stride));
  const int32_t value = layer.Conv(inner, width, 3, 1);
  const int32_t shortcut = changes ? layer.Conv(0, width, 1, stride) : 0;
  layer.Relu(layer.Append(Add(value, shortcut)));
  return layer.Take();
}

ModelSpec Make(const char* name, const Depths& depths, bool imagenet, ConvStyle style) {
  ModelSpec model;
  model.name = name;
  model.input = imagenet ? Shape{3, 224, 224} : Shape{3, 32, 32};
  model.classes = imagenet ? 1000 : 10;
  model.layers.push_back(Stem(imagenet, style));
  for (int group = 0; group < 4; ++group) {
    for (int i = 0; i < depths[group]; ++i) model.layers.push_back(BasicBlock(group, i, style));
  }
  LayerBuilder fc("fc", style);
  fc.Append(HeadLinear(fc.Append(Plain(OpKind::kGlobalAvgPool, 0)), model.classes, style));
  model.layers.push_back(fc.Take());
  return model;
}

}  // namespace

ModelSpec ResNet18() { return Make("resnet18", k18, false, kWithNorm); }
ModelSpec ResNet34() { return Make("resnet34", k34, false, kWithNorm); }
ModelSpec ResNet18NoBn() { return Make("resnet18_nobn", k18, false, kWithoutNorm); }
ModelSpec ResNet34NoBn() { return Make("resnet34_nobn", k34, false, kWithoutNorm); }
ModelSpec ResNet18ImageNet() { return Make("resnet18_imagenet", k18, true, kWithNorm); }
ModelSpec ResNet34ImageNet() { return Make("resnet34_imagenet", k34, true, kWithNorm); }
ModelSpec ResNet18NoBnImageNet() { return Make("resnet18_nobn_imagenet", k18, true, kWithoutNorm); }
ModelSpec ResNet34NoBnImageNet() { return Make("resnet34_nobn_imagenet", k34, true, kWithoutNorm); }

}  // namespace runnel::zoo
