#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

// Widths of the 3x3 convolutions; kPool is 2x2 max pooling, in the layer of the convolution before.
constexpr int64_t kPool = 0;
constexpr int64_t k11[] = {64,  kPool, 128,   kPool, 256, 256,  kPool,
                           512, 512,   kPool, 512,   512, kPool};
constexpr int64_t k16[] = {64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                           kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};
constexpr int64_t k19[] = {64,  64,  kPool, 128, 128,   kPool, 256, 256, 256, 256,  kPool,
                           512, 512, 512,   512, kPool, 512,   512, 512, 512, kPool};
constexpr int64_t kSmall7[] = {128, 128, kPool, 256, 256, kPool, 512, 512, kPool};

std::vector<LayerSpec> ConvLayers(absl::Span<const int64_t> widths, ConvStyle style) {
  std::vector<LayerSpec> layers;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] == kPool) continue;
    LayerBuilder layer(absl::StrCat("conv", layers.size() + 1), style);
    const int32_t value = layer.Relu(layer.Conv(0, widths[i], 3, 1));
    if (i + 1 < widths.size() && widths[i + 1] == kPool) layer.Append(MaxPool2(value));
    layers.push_back(layer.Take());
  }
  return layers;
}

ModelSpec Cifar(const char* name, absl::Span<const int64_t> widths, ConvStyle style,
                double dropout) {
  ModelSpec model;
  model.name = name;
  model.input = {3, 32, 32};
  model.classes = 10;
  model.layers = ConvLayers(widths, style);
  LayerBuilder fc("fc", style);
  int32_t value = fc.Append(Plain(OpKind::kFlatten, 0));
  if (dropout > 0) value = fc.Append(Dropout(value, dropout));
  fc.Append(HeadLinear(value, model.classes, style));
  model.layers.push_back(fc.Take());
  return model;
}

// The original's head: two hidden linear layers of 4096 with dropout.
ModelSpec ImageNet(const char* name, absl::Span<const int64_t> widths, ConvStyle style) {
  ModelSpec model;
  model.name = name;
  model.input = {3, 224, 224};
  model.classes = 1000;
  model.layers = ConvLayers(widths, style);
  for (int i = 1; i <= 2; ++i) {
    LayerBuilder fc(absl::StrCat("fc", i), style);
    const int32_t input = i == 1 ? fc.Append(Plain(OpKind::kFlatten, 0)) : 0;
    fc.Append(Dropout(fc.Relu(fc.Append(HeadLinear(input, 4096, style))), 0.5));
    model.layers.push_back(fc.Take());
  }
  LayerBuilder last("fc3", style);
  last.Append(HeadLinear(0, model.classes, style));
  model.layers.push_back(last.Take());
  return model;
}

}  // namespace

ModelSpec Vgg11() { return Cifar("vgg11", k11, kWithoutNorm, 0); }
ModelSpec Vgg16() { return Cifar("vgg16", k16, kWithoutNorm, 0); }
ModelSpec Vgg19() { return Cifar("vgg19", k19, kWithoutNorm, 0); }
ModelSpec Vgg11Bn() { return Cifar("vgg11_bn", k11, kWithNorm, 0); }
ModelSpec Vgg16Bn() { return Cifar("vgg16_bn", k16, kWithNorm, 0); }
ModelSpec Vgg19Bn() { return Cifar("vgg19_bn", k19, kWithNorm, 0); }
ModelSpec VggSmall7() { return Cifar("vgg_small_7", kSmall7, kWithoutNorm, 0.5); }

ModelSpec Vgg11ImageNet() { return ImageNet("vgg11_imagenet", k11, kWithoutNorm); }
ModelSpec Vgg16ImageNet() { return ImageNet("vgg16_imagenet", k16, kWithoutNorm); }
ModelSpec Vgg19ImageNet() { return ImageNet("vgg19_imagenet", k19, kWithoutNorm); }
ModelSpec Vgg11BnImageNet() { return ImageNet("vgg11_bn_imagenet", k11, kWithNorm); }
ModelSpec Vgg16BnImageNet() { return ImageNet("vgg16_bn_imagenet", k16, kWithNorm); }
ModelSpec Vgg19BnImageNet() { return ImageNet("vgg19_bn_imagenet", k19, kWithNorm); }

}  // namespace runnel::zoo
