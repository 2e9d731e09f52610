#pragma once

// Short forms of the operators that the zoo's models are written in. Each returns an OpSpec that
// reads value `input` of its layer (0: the layer's input, j + 1: the output of op j).

#include <cstdint>

#include "proto/base/model/model_spec.h"

namespace runnel::zoo {

// An operator without further settings: ReLU, ReLU6, flatten, global average pooling.
OpSpec Plain(OpKind kind, int32_t input);
OpSpec Conv1d(int32_t input, int64_t out_channels, int64_t kernel);
// Square kernel.
OpSpec Conv2d(int32_t input, int64_t out_channels, int64_t kernel, int64_t stride, int64_t padding,
              int64_t groups);
OpSpec Linear(int32_t input, int64_t out_features);
// A table of `rows` tokens, N(0, 1).
OpSpec Embedding(int32_t input, int64_t rows, int64_t features);
OpSpec BatchNorm(int32_t input);
// Window and stride 2 on every spatial axis.
OpSpec MaxPool2(int32_t input);
// Window 3, stride 2, padding 1.
OpSpec MaxPool3(int32_t input);
OpSpec Dropout(int32_t input, double rate);
OpSpec Add(int32_t left, int32_t right);

}  // namespace runnel::zoo
