#pragma once

// Builds layers that families of convolutional networks share, with their training defaults.
// Private to the zoo.

#include <cstdint>
#include <string>
#include <utility>

#include "partition/zoo/ops.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/training/training_defaults.h"

namespace runnel::zoo {

// Settings of all convolutions of a model.
struct ConvStyle {
  InitKind init = InitKind::kNormalFanOut;
  bool batch_norm = true;  // one behind each convolution
};
inline constexpr ConvStyle kWithNorm = {InitKind::kNormalFanOut, true};
// Style for the integer recipe (NITI): no batch norm, no bias, Xavier's normal draws.
inline constexpr ConvStyle kWithoutNorm = {InitKind::kXavierNormal, false};

// Collects the operators of one layer.
// Each method but Take returns the id of the value that it adds.
class LayerBuilder {
 public:
  LayerBuilder(std::string name, ConvStyle style) : style_(style) { layer_.name = std::move(name); }

  int32_t Append(OpSpec op) {
    layer_.ops.push_back(std::move(op));
    return static_cast<int32_t>(layer_.ops.size());
  }
  // Padded so that stride 1 keeps the size; no bias.
  int32_t Conv(int32_t input, int64_t channels, int64_t kernel, int64_t stride,
               int64_t groups = 1) {
    OpSpec conv = Conv2d(input, channels, kernel, stride, kernel / 2, groups);
    conv.init = style_.init;
    const int32_t value = Append(std::move(conv));
    return style_.batch_norm ? Append(BatchNorm(value)) : value;
  }
  int32_t Relu(int32_t input) { return Append(Plain(OpKind::kRelu, input)); }
  LayerSpec Take() { return std::move(layer_); }

 private:
  ConvStyle style_;
  LayerSpec layer_;
};

// A linear layer of such a model: N(0, 0.01^2) and a bias beside batch norm, else as the
// convolutions.
OpSpec HeadLinear(int32_t input, int64_t out_features, ConvStyle style);

// Defaults for CIFAR-10: batch 64, the FP32 rate of NITI's companion runs (0.01), five times as
// much with batch norm.
TrainingDefaults CifarDefaults(ConvStyle style);
// Defaults for 224x224 ImageNet: batch 64, a quarter of the usual rates of batch 256 with batch
// norm.
TrainingDefaults ImageNetDefaults(ConvStyle style);

}  // namespace runnel::zoo
