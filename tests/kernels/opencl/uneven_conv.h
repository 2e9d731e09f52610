#pragma once

#include "proto/base/model/model_spec.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// A convolution in two groups whose sizes fill no tile, with unlike window, strides and padding.
struct UnevenConv {
  Shape x = {3, 10, 9, 7};
  Shape weight = {38, 5, 3, 2};
  Shape y = {3, 38, 5, 6};
  OpSpec op = {.kind = OpKind::kConv,
               .out_channels = 38,
               .kernel = {3, 2},
               .stride = {2, 1},
               .padding = {1, 0},
               .groups = 2};
};

}  // namespace runnel
