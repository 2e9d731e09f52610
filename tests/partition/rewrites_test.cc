#include "partition/zoo/rewrites/rewrites.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

// What every row promises.
TEST(Rewrites, EachHasANameOfItsOwnAndRefusesNonsense) {
  for (const RewriteRow& row : Rewrites()) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(row.name.find_first_of(":, "), row.name.npos);
    EXPECT_FALSE(row.arguments.empty());
    EXPECT_FALSE(row.summary.empty());
    const ModelSpec model = *MakeModel("lenet");
    for (const std::string bad : {"", "?", "\xff"}) {
      const absl::Status status = Rewrite(model, {std::string(row.name) + ":" + bad}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad;
      EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
    }
  }
  EXPECT_EQ(*Rewrite(*MakeModel("lenet"), {}), *MakeModel("lenet"));
}

std::string ErrorOf(const std::string& model, const std::vector<std::string>& rewrites) {
  return std::string(Rewrite(*MakeModel(model), rewrites).status().message());
}

TEST(Freeze, ACountOrARange) {
  const ModelSpec vgg = *MakeModel("vgg11");
  EXPECT_EQ(vgg.frozen_front(), 0);
  const ModelSpec count = *Rewrite(vgg, {"freeze:6"});
  EXPECT_EQ(count, *Rewrite(vgg, {"freeze:0-5"}));
  EXPECT_EQ(count, *Rewrite(vgg, {"freeze:0-2", "freeze:3-5"}));
  for (int layer = 0; layer < vgg.layer_count(); ++layer)
    EXPECT_EQ(count.layers[layer].frozen, layer < 6) << layer;
  EXPECT_EQ(count.frozen_front(), 6);
  const ModelSpec middle = *Rewrite(vgg, {"freeze:2-3"});
  EXPECT_TRUE(middle.layers[3].frozen);
  EXPECT_EQ(middle.frozen_front(), 0) << "gradients pass";
}

TEST(Freeze, OfEveryModelAllButTheLastLayer) {
  for (const std::string& name : ModelNames()) {
    const ModelSpec model = *MakeModel(name);
    const auto frozen = Rewrite(model, {"freeze:" + std::to_string(model.layer_count() - 1)});
    ASSERT_TRUE(frozen.ok()) << name << ": " << frozen.status();
    EXPECT_EQ(frozen->frozen_front(), model.layer_count() - 1) << name;
  }
}

TEST(Freeze, WhatMakesNoSenseIsNamed) {
  EXPECT_THAT(ErrorOf("lenet", {"melt:3"}),
              HasSubstr("melt:3: there is no such rewrite; there are freeze:LAYERS"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:0"}), HasSubstr("'0' is no number of layers"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:3-1"}), HasSubstr("no range such as 0-5"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:1-"}), HasSubstr("no range such as 0-5"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:2-6"}),
              HasSubstr("layer 6 is beyond the model, lenet has layers 0 to 5"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:7"}), HasSubstr("layer 6 is beyond the model"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:6"}), HasSubstr("all 6 layers of lenet would be frozen"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:0-2", "freeze:3-5"}), HasSubstr("all 6 layers"));
  EXPECT_THAT(ErrorOf("lenet", {"freeze:4-5"}), HasSubstr("makes the loss and must be trained"));
  EXPECT_THAT(ErrorOf("resnet18", {"freeze:2-3"}), HasSubstr("has batch norm"));
}

}  // namespace
}  // namespace runnel
