#pragma once

// The zoo's models, one function each; partition/zoo/models.inc is the table.

#include "proto/base/model/model_spec.h"
#include "proto/base/training/training_defaults.h"

namespace runnel::zoo {

// NITI's LeNet for 1x28x28: convolutions 5x5 of 20 and 50 channels, linear 500 and 10, no bias.
// 6 layers, 430,500 parameters, 2,293,000 MACs a sample.
ModelSpec LeNet();
TrainingDefaults LeNetDefaults();

// FTPipeHD's and AccEPT's CNN for human activity recognition, 9x128 windows, 6 classes. 5 layers,
// 411,650 parameters, 2,138,840 MACs.
ModelSpec HarCnn();
TrainingDefaults HarCnnDefaults();

// Ours, for tables: linear 128 and 64 with ReLU, then the classes; it follows the data that it is
// trained on. 3 layers.
ModelSpec Mlp();
TrainingDefaults MlpDefaults();

// Ours: the next byte of a text from the one before. 3 layers.
ModelSpec Bigram();
TrainingDefaults BigramDefaults();

// Decoders of 128 tokens, pre-norm, with an untied head: of bytes with 128 features, 4 heads and
// blocks; of WikiText-2's 33,278 words with 256 and 512 features, 4 and 8 heads, 4 and 6 blocks
// (FracTrain's Transformer-base). 875,264, 20,230,656 and 53,057,536 parameters, 121.6 M, 1.53 G and
// 4.70 G MACs a sample.
ModelSpec TransformerTiny();
ModelSpec TransformerSmall();
ModelSpec TransformerBase();
TrainingDefaults TransformerDefaults();

// ResNet of MLPerf Tiny with 16, 32 and 64 channels, biases in all convolutions: 5 layers, 78,186
// parameters, 12.5 M MACs.
ModelSpec ResNet8();
// DS-CNN of MLPerf Tiny for keywords, 49 frames of 10 coefficients, 12 classes: a 10x4 convolution,
// four pairs of a depthwise 3x3 and a 1x1 convolution. 6 layers, 23,756 parameters, 2.66 M MACs.
ModelSpec DsCnn();
// Defaults of both.
TrainingDefaults TinyDefaults();

// MobileNetV2 as AccEPT cuts it into 20 layers: ImageNet strides on 3x32x32, ReLU6, residual where
// the shape stays. 2,236,682 parameters, 6,124,928 MACs.
ModelSpec MobileNetV2();

// MobileNetV2 as FracTrain trains it on CIFAR-10: stride 1 at the front, ReLU, and a 1x1
// convolution on the shortcut where the width changes. 20 layers, 2,296,922 parameters,
// 91,154,944 MACs.
ModelSpec MobileNetV2S1();
// Defaults of both MobileNetV2s.
TrainingDefaults MobileNetV2Defaults();

// MobileNetV3-Small (squeeze-and-excite, hard-swish) with stride 1 in the first convolution and
// block. 14 layers, 1,528,106 parameters.
ModelSpec MobileNetV3Small();

// Ours, as no paper says which it trained: GoogLeNet's convolutions to 192 channels, its modules 3a
// and 3b, a 1x1 convolution of 512; batch norm behind each of the 16. 7 layers.
ModelSpec InceptionCifar();

// MobileNetV1 (the INT8 paper's): a 3x3 convolution, 13 pairs of a depthwise 3x3 and a 1x1
// convolution with ReLU, each pair a layer, mean, linear. For 3x32x32 with stride 1 at the front:
// 15 layers, 3,217,226 parameters, 46.4 M MACs; for 3x224x224 4,231,976 and 568.7 M; for 3x128x128
// and PULP-TrainLib's 11 classes 3,218,251 and 185.4 M.
ModelSpec MobileNetV1();
ModelSpec MobileNetV1For128();
ModelSpec MobileNetV1ImageNet();

// VGG for 3x32x32, 10 classes: 3x3 convolutions with ReLU and one linear layer. Each convolution is
// a layer, with the pooling behind it. Without batch norm nothing has a bias either (NITI): 9, 14
// and 17 layers, 9,222,848, 14,715,584 and 20,024,000 parameters, 152.8 M, 313.2 M and 398.1 M
// MACs.
ModelSpec Vgg11();
ModelSpec Vgg16();
ModelSpec Vgg19();
// VGG with batch norm behind each convolution and a bias in the linear layer: 9,228,362, 14,724,042
// and 20,035,018 parameters.
ModelSpec Vgg11Bn();
ModelSpec Vgg16Bn();
ModelSpec Vgg19Bn();
// NITI's VGG-small-7: 128, 128, 256, 256, 512, 512, dropout, linear; no batch norm, no bias. 7
// layers, 4,656,512 parameters, 607.6 M MACs.
ModelSpec VggSmall7();

// VGG for 3x224x224, 1000 classes: three linear layers of 4096, 4096 and 1000. 11, 16 and 19
// layers, 132.9 M, 138.3 M and 143.7 M parameters, 7.6 G, 15.5 G and 19.6 G MACs.
ModelSpec Vgg11ImageNet();
ModelSpec Vgg16ImageNet();
ModelSpec Vgg19ImageNet();
ModelSpec Vgg11BnImageNet();
ModelSpec Vgg16BnImageNet();
ModelSpec Vgg19BnImageNet();

// ResNet of basic blocks for 3x32x32, 10 classes: first convolution 3x3 without pooling. Each block
// is a layer. 10 and 18 layers, 11,173,962 and 21,282,122 parameters, 555.4 M and 1,159.4 M MACs.
ModelSpec ResNet18();
ModelSpec ResNet34();
// ResNet of bottlenecks, the stride in the 3x3 convolution: 18 layers, 23,520,842 parameters,
// 1,297.8 M MACs.
ModelSpec ResNet50();
// ResNet of 6n + 2 layers with 16, 32 and 64 channels (FracTrain), a 1x1 convolution on the
// shortcut where the shape changes: 11, 20 and 38 layers, 272,474, 564,122 and 1,147,418 parameters,
// 40.8 M, 83.3 M and 168.2 M MACs.
ModelSpec ResNet20();
ModelSpec ResNet38();
ModelSpec ResNet74();
// ResNet without batch norm and bias: 11,164,352 and 21,265,088 parameters.
ModelSpec ResNet18NoBn();
ModelSpec ResNet34NoBn();

// ResNet for 3x224x224, 1000 classes: first convolution 7x7 of stride 2, then 3x3 max pooling of
// stride 2. 11,689,512, 21,797,672 and 25,557,032 parameters, 1.81 G, 3.66 G and 4.09 G MACs.
ModelSpec ResNet18ImageNet();
ModelSpec ResNet34ImageNet();
ModelSpec ResNet50ImageNet();
ModelSpec ResNet18NoBnImageNet();
ModelSpec ResNet34NoBnImageNet();

}  // namespace runnel::zoo
