#include <utility>

#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

// Channels of a module's branches: 1x1; 1x1 and 3x3; 1x1 and 5x5; max pool and 1x1.
struct Branches {
  int64_t point, reduce3, conv3, reduce5, conv5, pooled;
};
constexpr Branches kA = {64, 96, 128, 16, 32, 32};    // GoogLeNet's 3a: 256
constexpr Branches kB = {128, 128, 192, 32, 96, 64};  // 3b: 480

int32_t ConvRelu(LayerBuilder& layer, int32_t input, int64_t channels, int64_t kernel) {
  return layer.Relu(layer.Conv(input, channels, kernel, 1));
}

LayerSpec Module(const char* name, const Branches& b, ConvStyle style) {
  LayerBuilder layer(name, style);
  const auto join = [&layer](int32_t left, int32_t right) {
    OpSpec op = Plain(OpKind::kConcat, left);
    op.inputs.push_back(right);
    return layer.Append(std::move(op));
  };
  int32_t joined = ConvRelu(layer, 0, b.point, 1);
  joined = join(joined, ConvRelu(layer, ConvRelu(layer, 0, b.reduce3, 1), b.conv3, 3));
  joined = join(joined, ConvRelu(layer, ConvRelu(layer, 0, b.reduce5, 1), b.conv5, 5));
  OpSpec pool = MaxPool3(0);
  pool.stride = {1, 1};
  join(joined, ConvRelu(layer, layer.Append(std::move(pool)), b.pooled, 1));
  return layer.Take();
}

LayerSpec Conv(const char* name, int64_t channels, int64_t kernel, bool pools, ConvStyle style) {
  LayerBuilder layer(name, style);
  const int32_t value = ConvRelu(layer, 0, channels, kernel);
  if (pools) layer.Append(MaxPool3(value));
  return layer.Take();
}

}  // namespace

ModelSpec InceptionCifar() {
  constexpr ConvStyle kStyle = kWithNorm;
  LayerBuilder head("fc", kStyle);
  head.Append(HeadLinear(head.Append(Plain(OpKind::kGlobalAvgPool, 0)), 10, kStyle));
  return {.name = "inception_cifar",
          .input = {3, 32, 32},
          .classes = 10,
          .layers = {Conv("conv1", 64, 3, false, kStyle), Conv("conv2", 64, 1, false, kStyle),
                     Conv("conv3", 192, 3, true, kStyle), Module("module_a", kA, kStyle),
                     Module("module_b", kB, kStyle), Conv("conv_last", 512, 1, true, kStyle),
                     head.Take()}};
}

}  // namespace runnel::zoo
