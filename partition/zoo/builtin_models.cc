#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/zoo/layer_builder.h"
#include "partition/zoo/models.h"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::Span<const ModelRow> BuiltinModels() {
  using zoo::kWithNorm, zoo::kWithoutNorm;
  static const TrainingDefaults cifar = zoo::CifarDefaults(kWithNorm);
  static const TrainingDefaults imagenet = zoo::ImageNetDefaults(kWithNorm);
  static const ModelRow kRows[] = {
      {"lenet", "LeNet without biases, 6 layers, 1x28x28 (NITI, Mandheling)", "synthetic_digits",
       zoo::LeNet, zoo::LeNetDefaults(), 1},
      {"har_cnn",
       "CNN for activity recognition, 5 layers, 9x128 (FTPipeHD, AccEPT)",
       "synthetic_har",
       zoo::HarCnn,
       zoo::HarCnnDefaults(),
       1,
       {.forward_3_bits = 60, .forward_4_bits = 160, .backward_4_bits = 120}},
      {"mobilenet_v2", "MobileNetV2, 20 layers, 3x32x32, stride 2 at the front (AccEPT)", "cifar10",
       zoo::MobileNetV2, zoo::MobileNetV2Defaults(), 1},
      {"mobilenet_v2_s1", "MobileNetV2, 20 layers, 3x32x32, stride 1 at the front (FracTrain)",
       "cifar10", zoo::MobileNetV2S1, zoo::MobileNetV2Defaults()},
      {"mobilenet_v1", "MobileNetV1, 15 layers, 3x32x32, stride 1 at the front", "cifar10",
       zoo::MobileNetV1, cifar},
      {"mobilenet_v1_128", "MobileNetV1, 15 layers, 3x128x128, 11 classes (PULP-TrainLib)", "",
       zoo::MobileNetV1For128, imagenet},
      {"resnet8", "ResNet-8 of MLPerf Tiny, 5 layers, 3x32x32 (PULP-TrainLib)", "cifar10",
       zoo::ResNet8, zoo::TinyDefaults()},
      {"ds_cnn", "DS-CNN of MLPerf Tiny, 6 layers, 1x49x10, 12 keywords (PULP-TrainLib)",
       "synthetic_keywords", zoo::DsCnn, zoo::TinyDefaults()},
      {"vgg11", "VGG-11 without batch norm and bias, 9 layers, 3x32x32 (NITI)", "cifar10",
       zoo::Vgg11, zoo::CifarDefaults(kWithoutNorm), 8},
      {"vgg16", "VGG-16 without batch norm and bias, 14 layers, 3x32x32 (NITI)", "cifar10",
       zoo::Vgg16, zoo::CifarDefaults(kWithoutNorm)},
      {"vgg19", "VGG-19 without batch norm and bias, 17 layers, 3x32x32 (NITI)", "cifar10",
       zoo::Vgg19, zoo::CifarDefaults(kWithoutNorm)},
      {"vgg11_bn", "VGG-11 with batch norm, 9 layers, 3x32x32", "cifar10", zoo::Vgg11Bn, cifar},
      {"vgg16_bn", "VGG-16 with batch norm, 14 layers, 3x32x32", "cifar10", zoo::Vgg16Bn, cifar},
      {"vgg19_bn", "VGG-19 with batch norm, 17 layers, 3x32x32", "cifar10", zoo::Vgg19Bn, cifar},
      {"vgg_small_7", "VGG-small-7 without batch norm and bias, 7 layers, 3x32x32 (NITI)",
       "cifar10", zoo::VggSmall7, zoo::CifarDefaults(kWithoutNorm)},
      {"resnet18", "ResNet-18, 10 layers, 3x32x32", "cifar10", zoo::ResNet18, cifar, 8},
      {"resnet34", "ResNet-34, 18 layers, 3x32x32", "cifar10", zoo::ResNet34, cifar},
      {"resnet50", "ResNet-50, 18 layers, 3x32x32", "cifar10", zoo::ResNet50, cifar},
      {"resnet20", "ResNet-20 of 16 to 64 channels, 11 layers, 3x32x32", "cifar10", zoo::ResNet20,
       cifar},
      {"resnet38", "ResNet-38 of 16 to 64 channels, 20 layers, 3x32x32 (FracTrain)", "cifar10",
       zoo::ResNet38, cifar},
      {"resnet74", "ResNet-74 of 16 to 64 channels, 38 layers, 3x32x32 (FracTrain)", "cifar10",
       zoo::ResNet74, cifar},
      {"resnet18_nobn", "ResNet-18 without batch norm and bias, 10 layers, 3x32x32", "cifar10",
       zoo::ResNet18NoBn, zoo::CifarDefaults(kWithoutNorm)},
      {"resnet34_nobn", "ResNet-34 without batch norm and bias, 18 layers, 3x32x32", "cifar10",
       zoo::ResNet34NoBn, zoo::CifarDefaults(kWithoutNorm)},
      {"vgg11_imagenet", "VGG-11 without batch norm and bias, 11 layers, 3x224x224", "",
       zoo::Vgg11ImageNet, zoo::ImageNetDefaults(kWithoutNorm)},
      {"vgg16_imagenet", "VGG-16 without batch norm and bias, 16 layers, 3x224x224", "",
       zoo::Vgg16ImageNet, zoo::ImageNetDefaults(kWithoutNorm)},
      {"vgg19_imagenet", "VGG-19 without batch norm and bias, 19 layers, 3x224x224", "",
       zoo::Vgg19ImageNet, zoo::ImageNetDefaults(kWithoutNorm)},
      {"vgg11_bn_imagenet", "VGG-11 with batch norm, 11 layers, 3x224x224", "",
       zoo::Vgg11BnImageNet, imagenet},
      {"vgg16_bn_imagenet", "VGG-16 with batch norm, 16 layers, 3x224x224", "",
       zoo::Vgg16BnImageNet, imagenet},
      {"vgg19_bn_imagenet", "VGG-19 with batch norm, 19 layers, 3x224x224", "",
       zoo::Vgg19BnImageNet, imagenet},
      {"resnet18_imagenet", "ResNet-18, 10 layers, 3x224x224", "", zoo::ResNet18ImageNet, imagenet},
      {"resnet34_imagenet", "ResNet-34, 18 layers, 3x224x224", "", zoo::ResNet34ImageNet, imagenet},
      {"resnet50_imagenet", "ResNet-50, 18 layers, 3x224x224", "", zoo::ResNet50ImageNet, imagenet},
      {"mobilenet_v1_imagenet", "MobileNetV1, 15 layers, 3x224x224", "", zoo::MobileNetV1ImageNet,
       imagenet},
      {"resnet18_nobn_imagenet", "ResNet-18 without batch norm and bias, 10 layers, 3x224x224", "",
       zoo::ResNet18NoBnImageNet, zoo::ImageNetDefaults(kWithoutNorm)},
      {"resnet34_nobn_imagenet", "ResNet-34 without batch norm and bias, 18 layers, 3x224x224", "",
       zoo::ResNet34NoBnImageNet, zoo::ImageNetDefaults(kWithoutNorm)},
      {"mlp", "two hidden layers for tables, 3 layers, as many features as the data have (ours)",
       "", zoo::Mlp, zoo::MlpDefaults()},
      {"bigram", "the next byte of a text from the one before, 3 layers, 64 bytes (ours)",
       "wikitext2", zoo::Bigram, zoo::BigramDefaults()},
  };
  return kRows;
}

const ModelRow& OwnModel() {
  static const ModelRow row = {"own",
                               "a network of your own",
                               "",
                               nullptr,
                               {.batch_size = 32,
                                .epochs = 10,
                                .learning_rate = 0.01,
                                .momentum = 0.9,
                                .weight_decay = 1e-4,
                                .milestones = {8},
                                .milestone_epochs = 10}};
  return row;
}

absl::StatusOr<const ModelRow*> FindModel(absl::string_view name) {
  if (absl::StartsWith(name, kJsonPrefix) || absl::StartsWith(name, kOnnxPrefix))
    return &OwnModel();
  for (const ModelRow& row : BuiltinModels()) {
    if (row.name == name) return &row;
  }
  return absl::InvalidArgumentError(absl::StrCat("model '", name, "' is not known; there are ",
                                                 absl::StrJoin(ModelNames(), ", ")));
}

absl::StatusOr<ModelSpec> MakeModel(absl::string_view name) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelRow* row, FindModel(name));
  if (row->make != nullptr) return row->make();
  return absl::InvalidArgumentError(absl::StrCat(
      "model '", name,
      "': only models of the zoo can be taken here: ", absl::StrJoin(ModelNames(), ", ")));
}

absl::StatusOr<ModelSpec> ModelFor(ModelSpec model, const Shape& sample, int64_t classes) {
  model.input = sample;
  model.classes = classes;
  std::vector<OpSpec>& ops = model.layers.back().ops;
  const auto last = std::find_if(ops.rbegin(), ops.rend(),
                                 [](const OpSpec& op) { return op.kind == OpKind::kLinear; });
  if (last == ops.rend()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, ": its last layer has no linear operator to adapt"));
  }
  last->out_channels = classes;
  const absl::Status status = InferShapes(model, 1).status();
  if (status.ok()) return model;
  return absl::InvalidArgumentError(absl::StrCat("model ", model.name, " for samples of ",
                                                 sample.ToString(), ": ", status.message()));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const ModelRow& row : BuiltinModels()) names.emplace_back(row.name);
  return names;
}

}  // namespace runnel
