#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/zoo/models.h"
#include "partition/zoo/zoo.h"

namespace runnel {

absl::Span<const ModelRow> BuiltinModels() {
  static constexpr ModelRow kRows[] = {
      {"lenet", "LeNet without biases, 6 layers, 1x28x28 (NITI, Mandheling)", "synthetic_digits",
       zoo::LeNet},
      {"har_cnn",
       "CNN for activity recognition, 5 layers, 9x128 (FTPipeHD, AccEPT)",
       "synthetic_har",
       zoo::HarCnn,
       {.forward_3_bits = 60, .forward_4_bits = 160, .backward_4_bits = 120}},
      {"mobilenet_v2", "MobileNetV2, 20 layers, 3x32x32, stride 2 at the front (AccEPT)", "cifar10",
       zoo::MobileNetV2},
      {"mobilenet_v2_s1", "MobileNetV2, 20 layers, 3x32x32, stride 1 at the front (FracTrain)",
       "cifar10", zoo::MobileNetV2S1},
      {"vgg11", "VGG-11 without batch norm and bias, 9 layers, 3x32x32 (NITI)", "cifar10",
       zoo::Vgg11},
      {"vgg16", "VGG-16 without batch norm and bias, 14 layers, 3x32x32 (NITI)", "cifar10",
       zoo::Vgg16},
      {"vgg19", "VGG-19 without batch norm and bias, 17 layers, 3x32x32 (NITI)", "cifar10",
       zoo::Vgg19},
      {"vgg11_bn", "VGG-11 with batch norm, 9 layers, 3x32x32", "cifar10", zoo::Vgg11Bn},
      {"vgg16_bn", "VGG-16 with batch norm, 14 layers, 3x32x32", "cifar10", zoo::Vgg16Bn},
      {"vgg19_bn", "VGG-19 with batch norm, 17 layers, 3x32x32", "cifar10", zoo::Vgg19Bn},
      {"vgg_small_7", "VGG-small-7 without batch norm and bias, 7 layers, 3x32x32 (NITI)",
       "cifar10", zoo::VggSmall7},
      {"resnet18", "ResNet-18, 10 layers, 3x32x32", "cifar10", zoo::ResNet18},
      {"resnet34", "ResNet-34, 18 layers, 3x32x32", "cifar10", zoo::ResNet34},
      {"resnet18_nobn", "ResNet-18 without batch norm and bias, 10 layers, 3x32x32", "cifar10",
       zoo::ResNet18NoBn},
      {"resnet34_nobn", "ResNet-34 without batch norm and bias, 18 layers, 3x32x32", "cifar10",
       zoo::ResNet34NoBn},
      {"vgg11_imagenet", "VGG-11 without batch norm and bias, 11 layers, 3x224x224", "",
       zoo::Vgg11ImageNet},
      {"vgg16_imagenet", "VGG-16 without batch norm and bias, 16 layers, 3x224x224", "",
       zoo::Vgg16ImageNet},
      {"vgg19_imagenet", "VGG-19 without batch norm and bias, 19 layers, 3x224x224", "",
       zoo::Vgg19ImageNet},
      {"vgg11_bn_imagenet", "VGG-11 with batch norm, 11 layers, 3x224x224", "",
       zoo::Vgg11BnImageNet},
      {"vgg16_bn_imagenet", "VGG-16 with batch norm, 16 layers, 3x224x224", "",
       zoo::Vgg16BnImageNet},
      {"vgg19_bn_imagenet", "VGG-19 with batch norm, 19 layers, 3x224x224", "",
       zoo::Vgg19BnImageNet},
      {"resnet18_imagenet", "ResNet-18, 10 layers, 3x224x224", "", zoo::ResNet18ImageNet},
      {"resnet34_imagenet", "ResNet-34, 18 layers, 3x224x224", "", zoo::ResNet34ImageNet},
      {"resnet18_nobn_imagenet", "ResNet-18 without batch norm and bias, 10 layers, 3x224x224", "",
       zoo::ResNet18NoBnImageNet},
      {"resnet34_nobn_imagenet", "ResNet-34 without batch norm and bias, 18 layers, 3x224x224", "",
       zoo::ResNet34NoBnImageNet},
  };
  return kRows;
}

BitSwitches BitSwitchesOf(absl::string_view name) {
  for (const ModelRow& row : BuiltinModels()) {
    if (row.name == name) return row.bit_switches;
  }
  return {};
}

absl::StatusOr<ModelSpec> MakeModel(absl::string_view name) {
  for (const ModelRow& row : BuiltinModels()) {
    if (row.name == name) return row.make();
  }
  return absl::InvalidArgumentError(absl::StrCat("model '", name, "' is not known; there are ",
                                                 absl::StrJoin(ModelNames(), ", ")));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const ModelRow& row : BuiltinModels()) names.emplace_back(row.name);
  return names;
}

}  // namespace runnel
