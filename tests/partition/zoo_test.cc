#include "partition/zoo/zoo.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace runnel::zoo_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model of ours and its row in tests/golden/models.json, which lists published networks.
struct GoldenRow {
  const char* model;
  const char* golden;
  int layers;
  int64_t added = 0;  // parameters that ours has and the published one has not
  int64_t added_macs = 0;
};
// From 224x224 and 1000 classes to 32x32 and 10: convolutions behind a front of `from` MACs and
// `size` a side become those behind one of `to` MACs and 32 a side.
constexpr int64_t AddedMacs(int64_t macs, int64_t from, int64_t to, int64_t size,
                            int64_t features) {
  return (macs - from - 1000 * features) / (size * size) * 32 * 32 + to + 10 * features - macs;
}
constexpr int64_t kResNet50Macs = 4'089'184'256;
constexpr int64_t kMobileNetV1Macs = 568'740'352;
// Channels of all convolutions together.
constexpr int64_t kVgg11Channels = 64 + 128 + 2 * 256 + 4 * 512;
constexpr int64_t kVgg16Channels = 2 * (64 + 128) + 3 * (256 + 512 + 512);
constexpr int64_t kVgg19Channels = 2 * (64 + 128) + 4 * (256 + 512 + 512);
constexpr int64_t kResNet18Channels = 64 + 4 * (64 + 128 + 256 + 512) + 128 + 256 + 512;
constexpr int64_t kResNet34Channels =
    64 + 2 * (3 * 64 + 4 * 128 + 6 * 256 + 3 * 512) + 128 + 256 + 512;
// A block each of 16, 32 and 64 channels; each has 4.7 M MACs.
constexpr int64_t kResNetBlocks = 2 * (9 * (256 + 1024 + 4096) + 2 * (16 + 32 + 64));
constexpr int64_t kHeadBiases = 4096 + 4096 + 1000;
constexpr GoldenRow kGolden[] = {
    {"lenet", "LeNet", 6},
    {"har_cnn", "HAR CNN", 5},
    {"mobilenet_v2", "MBV2-FTPipeHD 32", 20},
    {"mobilenet_v2_s1", "MBV2 kuangliu/FracTrain CIFAR", 20},
    {"mobilenet_v1", "MBV1 224 1000", 15, -990 * 1025,
     AddedMacs(kMobileNetV1Macs, 0, 0, 112, 1024)},
    {"mobilenet_v1_128", "MBV1 128 11cls", 15},
    {"resnet8", "ResNet8", 5},
    {"ds_cnn", "DS-CNN", 6},
    {"vgg11", "VGG11 CIFAR nobias noBN fc nobias", 9},
    {"vgg16", "VGG16 CIFAR nobias noBN fc nobias", 14},
    {"vgg19", "VGG19 CIFAR nobias noBN fc nobias", 17},
    {"vgg11_bn", "VGG11 CIFAR nobias BN fc bias", 9},
    {"vgg16_bn", "VGG16 CIFAR nobias BN fc bias", 14},
    {"vgg19_bn", "VGG19 CIFAR nobias BN fc bias", 17},
    {"vgg_small_7", "niti VGG-small-7", 7},
    {"resnet18", "ResNet18 CIFAR stem", 10},
    {"resnet34", "ResNet34 CIFAR stem", 18},
    {"resnet50", "ResNet50 ImageNet", 18, -3 * 64 * (49 - 9) - 990 * 2049,
     AddedMacs(kResNet50Macs, 49 * 3 * 64 * 112 * 112, 9 * 3 * 64 * 32 * 32, 56, 2048)},
    {"resnet20", "ResNet38 6n+2 cifar10", 11, -3 * kResNetBlocks, -9 * 2 * 9 * 16 * 16 * 32 * 32},
    {"resnet38", "ResNet38 6n+2 cifar10", 20},
    {"resnet74", "ResNet74 6n+2 cifar10", 38},
    {"resnet18_nobn", "ResNet18 CIFAR stem", 10, -2 * kResNet18Channels - 10},
    {"resnet34_nobn", "ResNet34 CIFAR stem", 18, -2 * kResNet34Channels - 10},
    // Published with biases and without batch norm.
    {"vgg11_imagenet", "VGG11 ImageNet", 11, -kVgg11Channels - kHeadBiases},
    {"vgg16_imagenet", "VGG16 ImageNet", 16, -kVgg16Channels - kHeadBiases},
    {"vgg19_imagenet", "VGG19 ImageNet", 19, -kVgg19Channels - kHeadBiases},
    {"vgg11_bn_imagenet", "VGG11 ImageNet", 11, kVgg11Channels},
    {"vgg16_bn_imagenet", "VGG16 ImageNet", 16, kVgg16Channels},
    {"vgg19_bn_imagenet", "VGG19 ImageNet", 19, kVgg19Channels},
    {"resnet18_imagenet", "ResNet18 ImageNet 224", 10},
    {"resnet34_imagenet", "ResNet34 ImageNet 224", 18},
    {"resnet50_imagenet", "ResNet50 ImageNet", 18},
    {"mobilenet_v1_imagenet", "MBV1 224 1000", 15},
    {"resnet18_nobn_imagenet", "ResNet18 ImageNet 224", 10, -2 * kResNet18Channels - 1000},
    {"resnet34_nobn_imagenet", "ResNet34 ImageNet 224", 18, -2 * kResNet34Channels - 1000},
    {"transformer_tiny", "transformer_tiny", 6},
    {"transformer_small", "transformer_small", 6},
    {"transformer_base", "transformer_base", 8},
};

nlohmann::json LoadGolden() {
  std::ifstream file(std::string(RUNNEL_SOURCE_DIR) + "/tests/golden/models.json");
  return nlohmann::json::parse(file);
}

ModelSpec Make(const std::string& name) {
  absl::StatusOr<ModelSpec> model = MakeModel(name);
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

TEST(Zoo, EveryModelHasAGoldenRow) {
  std::vector<std::string> names;
  for (const GoldenRow& row : kGolden) names.emplace_back(row.model);
  names.insert(names.end(), {"mlp", "bigram", "inception_cifar",
                             "mobilenet_v3_small"});  // ours: no paper has them
  EXPECT_EQ(ModelNames(), names);
}

// Of torchvision's, with 1,000 classes, 2,542,856; strides have no weights.
TEST(Zoo, MobileNetV3SmallHasThePublishedParameters) {
  EXPECT_EQ(*CountParameters(Make("mobilenet_v3_small")), 2'542'856 - 990 * 1025);
}

TEST(Zoo, TotalsMatchTheSheet) {
  const nlohmann::json golden = LoadGolden();
  for (const GoldenRow& row : kGolden) {
    SCOPED_TRACE(row.model);
    const ModelSpec model = Make(row.model);
    EXPECT_EQ(model.name, row.model);
    EXPECT_EQ(model.layer_count(), row.layers);
    EXPECT_EQ(*CountParameters(model),
              golden.at(row.golden).at("params").get<int64_t>() + row.added);
    EXPECT_EQ(*CountMacs(model), golden.at(row.golden).at("macs").get<int64_t>() + row.added_macs);
  }
}

// Parameters, MACs, boundary shape and boundary KB of every layer, where the sheet lists them.
void CheckLayers(const char* model_name, const nlohmann::json& layers, int64_t batch,
                 const char* kb_key) {
  const ModelSpec model = Make(model_name);
  const auto infos = InferShapes(model, batch);
  const auto one = InferShapes(model, 1);
  ASSERT_TRUE(infos.ok() && one.ok()) << infos.status();
  ASSERT_EQ(infos->size(), layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    SCOPED_TRACE(model.layers[i].name);
    const auto dims = layers[i].at("out").get<std::vector<int64_t>>();
    EXPECT_EQ((*infos)[i].output, Shape::Create(dims)->Prepend(batch));
    EXPECT_EQ((*infos)[i].parameters, layers[i].at("params").get<int64_t>());
    EXPECT_EQ((*one)[i].macs, layers[i].at("macs").get<int64_t>());
    EXPECT_NEAR(4.0 * static_cast<double>((*infos)[i].output.elements()) / 1024,
                layers[i].at(kb_key).get<double>(), 0.01);
  }
}

TEST(Zoo, LayersMatchTheSheet) {
  const nlohmann::json golden = LoadGolden();
  CheckLayers("mobilenet_v2", golden.at("MBV2-FTPipeHD 32").at("layers"), 128, "kb_fp32_batch128");
  CheckLayers("har_cnn", golden.at("HAR CNN").at("layers"), 64, "kb_fp32_batch64");
}

// Name and boundary shape of each layer, for one sample.
std::vector<std::string> Boundaries(const char* name) {
  const ModelSpec model = Make(name);
  const auto infos = InferShapes(model, 1);
  EXPECT_TRUE(infos.ok()) << infos.status();
  std::vector<std::string> boundaries;
  for (int i = 0; i < model.layer_count(); ++i) {
    boundaries.push_back(model.layers[i].name + " " + (*infos)[i].output.ToString());
  }
  return boundaries;
}

TEST(Zoo, LeNetIsCutWhereItSays) {
  EXPECT_THAT(Boundaries("lenet"),
              ElementsAre("conv1 1x20x24x24", "pool1 1x20x12x12", "conv2 1x50x8x8", "pool2 1x800",
                          "fc1 1x500", "fc2 1x10"));
}

TEST(Zoo, VggIsCutBehindItsPools) {
  EXPECT_THAT(Boundaries("vgg11"),
              ElementsAre("conv1 1x64x16x16", "conv2 1x128x8x8", "conv3 1x256x8x8",
                          "conv4 1x256x4x4", "conv5 1x512x4x4", "conv6 1x512x2x2",
                          "conv7 1x512x2x2", "conv8 1x512x1x1", "fc 1x10"));
  EXPECT_THAT(Boundaries("vgg11_bn_imagenet"),
              ElementsAre("conv1 1x64x112x112", "conv2 1x128x56x56", "conv3 1x256x56x56",
                          "conv4 1x256x28x28", "conv5 1x512x28x28", "conv6 1x512x14x14",
                          "conv7 1x512x14x14", "conv8 1x512x7x7", "fc1 1x4096", "fc2 1x4096",
                          "fc3 1x1000"));
}

TEST(Zoo, ResNetIsCutBetweenBlocks) {
  EXPECT_THAT(
      Boundaries("resnet18"),
      ElementsAre("conv1 1x64x32x32", "block1_1 1x64x32x32", "block1_2 1x64x32x32",
                  "block2_1 1x128x16x16", "block2_2 1x128x16x16", "block3_1 1x256x8x8",
                  "block3_2 1x256x8x8", "block4_1 1x512x4x4", "block4_2 1x512x4x4", "fc 1x10"));
  EXPECT_EQ(Boundaries("resnet18_imagenet")[0], "conv1 1x64x56x56");
}

// NITI has neither batch norm nor biases.
TEST(Zoo, ModelsForIntegersHaveNoNormAndNoBias) {
  int without = 0;
  for (const ModelRow& row : BuiltinModels()) {
    SCOPED_TRACE(row.name);
    const ModelSpec model = row.make();
    if (model.has_batch_norm() || model.name == "har_cnn" || model.tokens() > 0) continue;
    ++without;
    for (const LayerSpec& layer : model.layers) {
      for (const OpSpec& op : layer.ops) {
        EXPECT_FALSE(op.bias) << layer.name;
        if (op.kind != OpKind::kConv && op.kind != OpKind::kLinear) continue;
        EXPECT_EQ(op.init, InitKind::kXavierNormal) << layer.name;
      }
    }
  }
  EXPECT_EQ(without, 13);  // mlp, LeNet, VGG-11, 16 and 19 and ResNet-18 and 34 twice, VGG-small-7
}

TrainingDefaults Defaults(absl::string_view name) { return (*FindModel(name))->defaults; }

TEST(Zoo, DefaultsAreThePapers) {
  const TrainingDefaults lenet = Defaults("lenet");
  EXPECT_EQ(lenet, (TrainingDefaults{64, 3, 0.01, 0.9, 5e-4, {2}, 0.1, 3}));
  const TrainingDefaults har = Defaults("har_cnn");
  EXPECT_EQ(har, (TrainingDefaults{64, 10, 0.01, 0.9, 4e-5, {60, 120, 160}, 0.2, 200}));
  const TrainingDefaults mobilenet = Defaults("mobilenet_v2");
  EXPECT_EQ(mobilenet, (TrainingDefaults{
                           128, 2, 0.1, 0.9, 4e-5, {130, 160, 175, 185}, 0.1, 200, "one_cycle"}));
}

TEST(Zoo, DefaultsByNormalisation) {
  EXPECT_EQ(Defaults("vgg11"), (TrainingDefaults{64, 10, 0.01, 0.9, 5e-4, {100, 150}, 0.1, 200}));
  EXPECT_EQ(Defaults("resnet18"),
            (TrainingDefaults{64, 10, 0.05, 0.9, 5e-4, {100, 150}, 0.1, 200, "one_cycle"}));
  EXPECT_EQ(Defaults("resnet18_imagenet"),
            (TrainingDefaults{64, 90, 0.025, 0.9, 1e-4, {30, 60}, 0.1, 90}));
}

// AccEPT's figures 10 and 11.
TEST(Zoo, BitSwitchesAreThePapers) {
  EXPECT_EQ((*FindModel("har_cnn"))->bit_switches, (BitSwitches{60, 160, 120}));
  EXPECT_EQ((*FindModel("mobilenet_v2"))->bit_switches, (BitSwitches{130, 175, 160}));
}

TEST(Zoo, InitialValuesFollowTheSheet) {
  const ModelSpec mobilenet = Make("mobilenet_v2");
  int convolutions = 0;
  for (const LayerSpec& layer : mobilenet.layers) {
    for (const OpSpec& op : layer.ops) {
      if (op.kind == OpKind::kConv) {
        ++convolutions;
        EXPECT_EQ(op.init, InitKind::kNormalFanOut);
        EXPECT_FALSE(op.bias);
      }
      if (op.kind == OpKind::kLinear) {
        EXPECT_EQ(op.init, InitKind::kNormal);
        EXPECT_EQ(op.init_std, 0.01);
      }
    }
  }
  EXPECT_EQ(convolutions, 2 + 16 * 3 + 2);  // first, last; 16 blocks of three, one of two
  const OpSpec first = Make("lenet").layers[0].ops[0];
  EXPECT_EQ(first.init, InitKind::kXavierNormal);
  EXPECT_FALSE(first.bias);
}

TEST(Zoo, UnknownNameListsTheModels) {
  const auto model = MakeModel("resnet");
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(model.status().message(),
              HasSubstr("'resnet' is not known; there are lenet, har_cnn, mobilenet_v2"));
}

}  // namespace
}  // namespace runnel::zoo_test
