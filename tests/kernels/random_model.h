#pragma once

// Small models for tests, random ones and by hand. Random: every operator, 1d and 2d, odd
// strides, paddings and groups, residual adds, layers that are only a flatten or a dropout.

#include <cstdint>
#include <vector>

#include "proto/base/model/model_spec.h"

namespace runnel {

// A valid model of 3 to 8 layers; a pure function of the seed.
ModelSpec RandomModel(uint64_t seed);

// Standard normal values, and labels below `classes`: pure functions of (seed, sequence).
std::vector<float> RandomValues(uint64_t seed, uint64_t sequence, int64_t count);
std::vector<int32_t> RandomLabels(uint64_t seed, uint64_t sequence, int64_t count, int64_t classes);

// One operator, and a model of layers named l0, l1, ...
OpSpec OpOf(OpKind kind, std::vector<int32_t> inputs);
OpSpec LinearOp(int64_t out_channels, std::vector<int32_t> inputs = {0});
OpSpec ReluOp(int32_t input = 1);
// A square window.
struct Window {
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 0;
};
OpSpec ConvOp(int64_t out_channels, const Window& window, int32_t input = 0, int64_t groups = 1);
OpSpec MaxPoolOp(const Window& window, int32_t input = 0);
ModelSpec ModelOf(Shape input, int64_t classes, std::vector<std::vector<OpSpec>> layers);
// Mandheling's and NITI's LeNet.
ModelSpec LeNetModel();
// Windows whose sides differ and whose taps lie apart, means over padding, parts of channels, shuffles.
ModelSpec ShapesModel();
// Two layers: a convolution with ReLU, and a linear one. Between them a pool, whose input-gradient
// lies between those of the linear layer and of the ReLU.
ModelSpec TwoProducts();

}  // namespace runnel
