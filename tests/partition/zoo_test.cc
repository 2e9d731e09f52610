#include "partition/zoo/zoo.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace runnel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model of ours and its row in tests/golden/models.json.
struct GoldenRow {
  const char* model;
  const char* golden;
  int layers;
};
constexpr GoldenRow kGolden[] = {
    {"lenet", "LeNet", 6},
    {"har_cnn", "HAR CNN", 5},
    {"mobilenet_v2", "MBV2-FTPipeHD 32", 20},
    {"mobilenet_v2_s1", "MBV2 kuangliu/FracTrain CIFAR", 20},
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
  EXPECT_EQ(ModelNames(), names);
}

TEST(Zoo, TotalsMatchTheSheet) {
  const nlohmann::json golden = LoadGolden();
  for (const GoldenRow& row : kGolden) {
    SCOPED_TRACE(row.model);
    const ModelSpec model = Make(row.model);
    EXPECT_EQ(model.name, row.model);
    EXPECT_EQ(model.layer_count(), row.layers);
    EXPECT_EQ(*CountParameters(model), golden.at(row.golden).at("params").get<int64_t>());
    EXPECT_EQ(*CountMacs(model), golden.at(row.golden).at("macs").get<int64_t>());
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

TEST(Zoo, LeNetIsCutWhereItSays) {
  const ModelSpec model = Make("lenet");
  const auto infos = InferShapes(model, 8);
  ASSERT_TRUE(infos.ok());
  std::vector<std::string> boundaries;
  for (int i = 0; i < model.layer_count(); ++i) {
    boundaries.push_back(model.layers[i].name + " " + (*infos)[i].output.ToString());
  }
  EXPECT_THAT(boundaries, ElementsAre("conv1 8x20x24x24", "pool1 8x20x12x12", "conv2 8x50x8x8",
                                      "pool2 8x800", "fc1 8x500", "fc2 8x10"));
}

TEST(Zoo, DefaultsAreThePapers) {
  const TrainingDefaults lenet = Make("lenet").defaults;
  EXPECT_EQ(lenet, (TrainingDefaults{64, 3, 0.01, 0.9, 5e-4, {2}, 0.1}));
  const TrainingDefaults har = Make("har_cnn").defaults;
  EXPECT_EQ(har, (TrainingDefaults{64, 10, 0.01, 0.9, 4e-5, {60, 120, 160}, 0.2}));
  const TrainingDefaults mobilenet = Make("mobilenet_v2").defaults;
  EXPECT_EQ(mobilenet, (TrainingDefaults{128, 2, 0.1, 0.9, 4e-5, {130, 160, 175, 185}, 0.1}));
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
}  // namespace runnel
