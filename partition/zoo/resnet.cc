#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

// Differences between the published networks of one family.
struct Form {
  std::array<int64_t, 4> widths;  // by group; 0: there is no such group
  std::array<int, 4> depths;      // blocks, by group
  bool has_bottlenecks = false;
};
constexpr std::array<int64_t, 4> kWide = {64, 128, 256, 512};
constexpr Form k18 = {kWide, {2, 2, 2, 2}};
constexpr Form k34 = {kWide, {3, 4, 6, 3}};
constexpr Form k50 = {kWide, {3, 4, 6, 3}, true};
// 6n + 2 layers with weights, of few channels.
constexpr Form k20 = {{16, 32, 64, 0}, {3, 3, 3, 0}};
constexpr Form k38 = {{16, 32, 64, 0}, {6, 6, 6, 0}};
constexpr Form k74 = {{16, 32, 64, 0}, {12, 12, 12, 0}};

// Channels that a bottleneck puts out, for one that it computes with.
constexpr int64_t kExpansion = 4;

struct Block {
  std::string name;
  int64_t width;
  int64_t stride;
  bool projects;  // a 1x1 convolution on the shortcut, because the shape changes
};

LayerSpec Stem(int64_t channels, bool imagenet, ConvStyle style) {
  LayerBuilder layer("conv1", style);
  if (imagenet) {
    layer.Append(MaxPool3(layer.Relu(layer.Conv(0, channels, 7, 2))));
  } else {
    layer.Relu(layer.Conv(0, channels, 3, 1));
  }
  return layer.Take();
}

// Two 3x3 convolutions and the shortcut.
LayerSpec BasicBlock(const Block& block, ConvStyle style) {
  LayerBuilder layer(block.name, style);
  const int32_t inner = layer.Relu(layer.Conv(0, block.width, 3, block.stride));
  const int32_t value = layer.Conv(inner, block.width, 3, 1);
  const int32_t shortcut = block.projects ? layer.Conv(0, block.width, 1, block.stride) : 0;
  layer.Relu(layer.Append(Add(value, shortcut)));
  return layer.Take();
}

// 1x1 down, 3x3 with the stride, 1x1 up, and the shortcut.
LayerSpec Bottleneck(const Block& block, ConvStyle style) {
  LayerBuilder layer(block.name, style);
  const int64_t out = kExpansion * block.width;
  const int32_t down = layer.Relu(layer.Conv(0, block.width, 1, 1));
  const int32_t inner = layer.Relu(layer.Conv(down, block.width, 3, block.stride));
  const int32_t value = layer.Conv(inner, out, 1, 1);
  const int32_t shortcut = block.projects ? layer.Conv(0, out, 1, block.stride) : 0;
  layer.Relu(layer.Append(Add(value, shortcut)));
  return layer.Take();
}

ModelSpec Make(const char* name, const Form& form, bool imagenet, ConvStyle style) {
  ModelSpec model;
  model.name = name;
  model.input = imagenet ? Shape{3, 224, 224} : Shape{3, 32, 32};
  model.classes = imagenet ? 1000 : 10;
  model.layers.push_back(Stem(form.widths[0], imagenet, style));
  for (size_t group = 0; group < form.widths.size(); ++group) {
    for (int i = 0; i < form.depths[group]; ++i) {
      const bool is_later = group > 0 && i == 0;
      const Block block = {absl::StrCat("block", group + 1, "_", i + 1), form.widths[group],
                           is_later ? 2 : 1, is_later || (i == 0 && form.has_bottlenecks)};
      model.layers.push_back(form.has_bottlenecks ? Bottleneck(block, style)
                                                  : BasicBlock(block, style));
    }
  }
  LayerBuilder fc("fc", style);
  fc.Append(HeadLinear(fc.Append(Plain(OpKind::kGlobalAvgPool, 0)), model.classes, style));
  model.layers.push_back(fc.Take());
  return model;
}

}  // namespace

ModelSpec ResNet18() { return Make("resnet18", k18, false, kWithNorm); }
ModelSpec ResNet34() { return Make("resnet34", k34, false, kWithNorm); }
ModelSpec ResNet50() { return Make("resnet50", k50, false, kWithNorm); }
ModelSpec ResNet20() { return Make("resnet20", k20, false, kWithNorm); }
ModelSpec ResNet38() { return Make("resnet38", k38, false, kWithNorm); }
ModelSpec ResNet74() { return Make("resnet74", k74, false, kWithNorm); }
ModelSpec ResNet18NoBn() { return Make("resnet18_nobn", k18, false, kWithoutNorm); }
ModelSpec ResNet34NoBn() { return Make("resnet34_nobn", k34, false, kWithoutNorm); }
ModelSpec ResNet18ImageNet() { return Make("resnet18_imagenet", k18, true, kWithNorm); }
ModelSpec ResNet34ImageNet() { return Make("resnet34_imagenet", k34, true, kWithNorm); }
ModelSpec ResNet50ImageNet() { return Make("resnet50_imagenet", k50, true, kWithNorm); }
ModelSpec ResNet18NoBnImageNet() { return Make("resnet18_nobn_imagenet", k18, true, kWithoutNorm); }
ModelSpec ResNet34NoBnImageNet() { return Make("resnet34_nobn_imagenet", k34, true, kWithoutNorm); }

}  // namespace runnel::zoo
