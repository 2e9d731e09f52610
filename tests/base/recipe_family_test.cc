#include "proto/base/training/recipe_family.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::recipe_family_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RecipeNames, AreTakenApart) {
  const auto fp32 = ParseRecipeName("fp32");
  ASSERT_TRUE(fp32.ok()) << fp32.status();
  EXPECT_EQ(fp32->family, &RecipeFamilies()[0]);
  EXPECT_TRUE(fp32->parameters.empty());
  EXPECT_TRUE(ParseRecipeName("niti")->parameters.empty());
  const auto profile = ParseRecipeName("niti:niti2021");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->text, "niti:niti2021");
  EXPECT_THAT(profile->parameters, testing::ElementsAre("niti2021"));
}

TEST(RecipeNames, WrongOnesAreNamedWithWhatThereIs) {
  const auto message = [](absl::string_view name) {
    return std::string(ParseRecipeName(name).status().message());
  };
  EXPECT_THAT(message("fp7"), AllOf(HasSubstr("'fp7'"), HasSubstr("fp32, niti:|niti2020")));
  EXPECT_THAT(message(""), HasSubstr("''"));
  EXPECT_THAT(message("fp32:8"), HasSubstr("fp32 has no parameters"));
  EXPECT_THAT(message("niti:foo"), HasSubstr("'niti:foo' does not fit niti:|niti2020|niti2021"));
  for (const char* name : {"fp32:", "niti:", "niti:niti2020,niti2021", "niti:niti2020:", ":niti"}) {
    EXPECT_FALSE(ParseRecipeName(name).ok()) << name;
  }
}

TEST(RecipeNames, OffersArePatterns) {
  const std::vector<std::string> offers = {"fp32", "grid:1..8|32,a|b"};
  for (const char* name : {"fp32", "grid:1,a", "grid:8,b", "grid:32,a"}) {
    EXPECT_TRUE(IsOffered(name, offers)) << name;
  }
  for (const char* name : {"fp32:", "fp3", "grid", "grid:0,a", "grid:9,a", "grid:4", "grid:4,a,b",
                           "grid:04,a", "grid:+4,a", "grid:4,", "grid:1..8,a", "", ":", "niti"}) {
    EXPECT_FALSE(IsOffered(name, offers)) << name;
  }
  // Whatever a worker says.
  for (const char* offer : {"", ":", "..", "a:..", "a:1..", "a:99999999999999999999..1", "a:|,|"}) {
    EXPECT_FALSE(IsOffered("a:4", {offer})) << offer;
  }
  for (const RecipeFamily& family : RecipeFamilies()) {
    EXPECT_THAT(RecipeHelp(), AllOf(HasSubstr(OfferOf(family)), HasSubstr(family.summary)));
  }
}

ModelSpec ModelOfOne(OpSpec op, const Shape& input) {
  ModelSpec model;
  model.name = "one";
  model.input = input;
  op.inputs = {0};
  OpSpec flatten, head;
  flatten.kind = OpKind::kFlatten;
  flatten.inputs = {1};
  head.kind = OpKind::kLinear;
  head.out_channels = model.classes = 2;
  head.inputs = {2};
  model.layers = {{"l0", {op, flatten, head}}};
  return model;
}

TEST(CheckTrainable, SumsThatAnInt32DoesNotHoldAreRefused) {
  const RecipeFamily& niti = *ParseRecipeName("niti")->family;
  OpSpec linear;
  linear.kind = OpKind::kLinear;
  linear.out_channels = 3;
  EXPECT_TRUE(CheckTrainable(ModelOfOne(linear, {133144}), niti).ok());
  EXPECT_THAT(std::string(CheckTrainable(ModelOfOne(linear, {133145}), niti).message()),
              AllOf(HasSubstr("model one, layer l0, op 0 (linear)"), HasSubstr("133145 products")));
  EXPECT_TRUE(CheckTrainable(ModelOfOne(linear, {133145}), RecipeFamilies()[0]).ok());
  // The input-gradient sums over what leaves: 5 * 5 * 6000 products of each channel.
  OpSpec conv;
  conv.kind = OpKind::kConv;
  conv.kernel = {5, 5};
  conv.out_channels = 6000;
  EXPECT_FALSE(CheckTrainable(ModelOfOne(conv, {2, 5, 5}), niti).ok());
  conv.groups = 2;
  EXPECT_TRUE(CheckTrainable(ModelOfOne(conv, {2, 5, 5}), niti).ok());
}

}  // namespace
}  // namespace runnel::recipe_family_test
