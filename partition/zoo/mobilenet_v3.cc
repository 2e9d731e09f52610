#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/ops.h"

namespace runnel::zoo {
namespace {

struct Block {
  int64_t kernel, hidden, channels;
  bool squeezes;  // a factor for each channel
  bool swishes;   // hard-swish, else ReLU
  int64_t stride;
};
// Table 2 of the paper (Howard et al., 2019); stride 1 at the front, for 32x32.
constexpr Block kBlocks[] = {
    {3, 16, 16, true, false, 1}, {3, 72, 24, false, false, 2}, {3, 88, 24, false, false, 1},
    {5, 96, 40, true, true, 2},  {5, 240, 40, true, true, 1},  {5, 240, 40, true, true, 1},
    {5, 120, 48, true, true, 1}, {5, 144, 48, true, true, 1},  {5, 288, 96, true, true, 2},
    {5, 576, 96, true, true, 1}, {5, 576, 96, true, true, 1},
};
constexpr int64_t kStem = 16, kLast = 576, kHidden = 1024;
constexpr double kDropout = 0.2;

int32_t Multiply(LayerBuilder& layer, int32_t value, int32_t factor) {
  OpSpec op = Plain(OpKind::kMultiply, value);
  op.inputs.push_back(factor);
  return layer.Append(std::move(op));
}

int32_t Activate(LayerBuilder& layer, int32_t value, bool swishes) {
  if (!swishes) return layer.Relu(value);
  return Multiply(layer, value, layer.Append(Plain(OpKind::kHardSigmoid, value)));
}

OpSpec WithBias(OpSpec linear) {
  linear.bias = true;
  return linear;
}

// A quarter of the channels, rounded to a multiple of 8.
int64_t SqueezedOf(int64_t channels) {
  const int64_t rounded = std::max<int64_t>(8, (channels / 4 + 4) / 8 * 8);
  return rounded * 10 < channels / 4 * 9 ? rounded + 8 : rounded;
}

int32_t Squeeze(LayerBuilder& layer, int32_t value, int64_t channels) {
  const int32_t mean = layer.Append(Plain(OpKind::kGlobalAvgPool, value));
  const int32_t inner = layer.Relu(layer.Append(WithBias(Linear(mean, SqueezedOf(channels)))));
  const int32_t outer = layer.Append(WithBias(Linear(inner, channels)));
  return Multiply(layer, value, layer.Append(Plain(OpKind::kHardSigmoid, outer)));
}

LayerSpec Inverted(int index, int64_t in, const Block& block) {
  LayerBuilder layer(absl::StrCat("block", index), kWithNorm);
  int32_t value = 0;
  if (block.hidden != in) value = Activate(layer, layer.Conv(0, block.hidden, 1, 1), block.swishes);
  value = layer.Conv(value, block.hidden, block.kernel, block.stride, block.hidden);
  value = Activate(layer, value, block.swishes);
  if (block.squeezes) value = Squeeze(layer, value, block.hidden);
  value = layer.Conv(value, block.channels, 1, 1);
  if (block.stride == 1 && in == block.channels) layer.Append(Add(value, 0));
  return layer.Take();
}

LayerSpec Swished(const char* name, int64_t channels, int64_t kernel) {
  LayerBuilder layer(name, kWithNorm);
  Activate(layer, layer.Conv(0, channels, kernel, 1), true);
  return layer.Take();
}

}  // namespace

ModelSpec MobileNetV3Small() {
  ModelSpec model = {.name = "mobilenet_v3_small", .input = {3, 32, 32}, .classes = 10};
  model.layers.push_back(Swished("conv_first", kStem, 3));
  int64_t channels = kStem;
  for (const Block& block : kBlocks) {
    model.layers.push_back(Inverted(static_cast<int>(model.layers.size()), channels, block));
    channels = block.channels;
  }
  model.layers.push_back(Swished("conv_last", kLast, 1));
  LayerBuilder head("fc", kWithNorm);
  const int32_t mean = head.Append(Plain(OpKind::kGlobalAvgPool, 0));
  const int32_t hidden = Activate(head, head.Append(WithBias(Linear(mean, kHidden))), true);
  head.Append(HeadLinear(head.Append(Dropout(hidden, kDropout)), model.classes, kWithNorm));
  model.layers.push_back(head.Take());
  return model;
}

}  // namespace runnel::zoo
