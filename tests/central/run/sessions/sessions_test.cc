// The parts of a session that need no process: the cut, the table of layers, the head's classes.

#include <cmath>
#include <cstring>

#include "absl/strings/str_split.h"
#include "central/run/sessions/head_classes.h"
#include "central/run/sessions/latent_layer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"

namespace runnel::sessions_test {
namespace {

using ::testing::HasSubstr;

TEST(LatentLayer, IsANumberOrAName) {
  const ModelSpec model = *MakeModel("resnet8");
  for (int layer = 1; layer < model.layer_count(); ++layer) {
    EXPECT_EQ(*ParseLatentLayer(std::to_string(layer), model), layer);
    EXPECT_EQ(*ParseLatentLayer(model.layers[static_cast<size_t>(layer)].name, model), layer);
  }
  for (const std::string& wrong :
       {std::string("0"), std::string("-1"), std::to_string(model.layer_count()),
        model.layers[0].name, std::string("nowhere"), std::string("1.5"), std::string()}) {
    EXPECT_THAT(std::string(ParseLatentLayer(wrong, model).status().message()),
                HasSubstr("cannot be cut there; give a layer from 1 to "))
        << wrong;
  }
}

// PULP-TrainLib (table 7): layers behind DW21, DW23 and the last one of MobileNetV1 at 128 x 128.
TEST(LatentLayer, TheTableHasThePapersCounts) {
  const ModelSpec model = *MakeModel("mobilenet_v1_128");
  const std::string table = *LayerTable(model);
  const std::vector<std::string> lines = absl::StrSplit(table, '\n');
  EXPECT_EQ(lines.size(), static_cast<size_t>(model.layer_count() + 1));
  EXPECT_THAT(table, HasSubstr(" 32768 "));
  EXPECT_THAT(table, HasSubstr("131072"));
  EXPECT_THAT(table, HasSubstr(" 32776 "));  // int8, with scale and zero
  for (const char* mmac : {" 42.470", " 25.398", " 0.011"}) EXPECT_THAT(table, HasSubstr(mmac));
}

TEST(LatentLayer, TheTailIsTheRestOfTheModel) {
  for (const char* name : {"resnet8", "lenet", "mobilenet_v1_128", "ds_cnn", "har_cnn"}) {
    const ModelSpec model = *MakeModel(name);
    const std::vector<LayerInfo> whole = *InferShapes(model, 3);
    for (int layer = 1; layer < model.layer_count(); ++layer) {
      const auto tail = TailOf(model, layer);
      ASSERT_TRUE(tail.ok()) << name << " " << layer << ": " << tail.status();
      const std::vector<LayerInfo> infos = *InferShapes(*tail, 3);
      ASSERT_EQ(infos.size() + static_cast<size_t>(layer), whole.size());
      for (size_t i = 0; i < infos.size(); ++i) {
        EXPECT_EQ(infos[i].input, whole[i + static_cast<size_t>(layer)].input);
        EXPECT_EQ(infos[i].parameters, whole[i + static_cast<size_t>(layer)].parameters);
      }
    }
  }
  const ModelSpec frozen = *Freeze(*MakeModel("lenet"), "3");
  EXPECT_THAT(std::string(TailOf(frozen, 2).status().message()), HasSubstr("is frozen"));
  EXPECT_TRUE(TailOf(frozen, 3).ok());
}

float ValueAt(const TensorData& tensor, size_t index) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

TEST(HeadClasses, UnseenOnesAreLeftOutAndNewOnesBeginAtNothing) {
  const ModelSpec model = *MakeModel("har_cnn");
  const ModelState drawn = *InitialState(model, 3);
  ModelState state = drawn;
  std::vector<bool> before(6), after(6);
  before[0] = before[4] = after[0] = after[4] = after[5] = true;
  ASSERT_TRUE(OpenClasses(model, before, after, state).ok());
  const TensorData& weight = state.layers.back().tensors[0];
  const TensorData& bias = state.layers.back().tensors[1];
  const TensorData& old_weight = drawn.layers.back().tensors[0];
  const TensorData& old_bias = drawn.layers.back().tensors[1];
  const size_t row = weight.bytes.size() / sizeof(float) / 6;
  for (size_t i = 0; i < 6; ++i) {
    const bool is_new = after[i] && !before[i];
    if (!after[i]) {
      EXPECT_EQ(ValueAt(bias, i), kUnseenBias);
      EXPECT_EQ(std::exp(ValueAt(bias, i) + 1000), 0.0f);  // whatever the logits that train
    } else if (is_new) {
      EXPECT_FLOAT_EQ(ValueAt(bias, i), (ValueAt(old_bias, 0) + ValueAt(old_bias, 4)) / 2);
    } else {
      EXPECT_EQ(ValueAt(bias, i), ValueAt(old_bias, i));
    }
    for (size_t k = 0; k < row; ++k)
      EXPECT_EQ(ValueAt(weight, i * row + k), is_new ? 0 : ValueAt(old_weight, i * row + k));
  }
  state.layers.back() = drawn.layers.back();
  EXPECT_EQ(state, drawn);  // nothing else
}

TEST(HeadClasses, AnotherEndIsRefused) {
  ModelSpec model = *MakeModel("har_cnn");
  model.layers.back().ops.back().bias = false;
  EXPECT_THAT(std::string(CheckHead(model).message()), HasSubstr("linear operator with a bias"));
}

}  // namespace
}  // namespace runnel::sessions_test
