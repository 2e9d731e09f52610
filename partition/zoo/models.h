#pragma once

// The zoo's models, one function each; partition/zoo/builtin_models.cc is the table.

#include "proto/base/model_spec.h"

namespace runnel::zoo {

// NITI's LeNet for 1x28x28: convolutions 5x5 of 20 and 50 channels, linear 500 and 10, no bias.
// 6 layers, 430,500 parameters, 2,293,000 MACs a sample.
ModelSpec LeNet();

// FTPipeHD's and AccEPT's CNN for human activity recognition, 9x128 windows, 6 classes. 5 layers,
// 411,650 parameters, 2,138,840 MACs.
ModelSpec HarCnn();

// MobileNetV2 as AccEPT cuts it into 20 layers: ImageNet strides on 3x32x32, ReLU6, residual where
// the shape stays. 2,236,682 parameters, 6,124,928 MACs.
ModelSpec MobileNetV2();

// MobileNetV2 as FracTrain trains it on CIFAR-10: stride 1 at the front, ReLU, and a 1x1
// convolution on the shortcut where the width changes. 20 layers, 2,296,922 parameters,
// 91,154,944 MACs.
ModelSpec MobileNetV2S1();

}  // namespace runnel::zoo
