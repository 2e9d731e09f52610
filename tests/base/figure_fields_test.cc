#include "proto/base/figures/figure_fields.h"

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace runnel::figure_fields_test {
namespace {

TEST(FigureFields, NamesMembersAndMetricsAreNotMixedUp) {
  std::set<std::string> names;
  std::map<std::string, std::string> helps;
  std::set<std::tuple<std::string, bool, Direction>> places;
  for (const FigureField& field : FigureFields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name << " is there twice";
    for (const FigureView& view : field.views) {
      if (view.key == nullptr && view.metric == nullptr) continue;
      ASSERT_NE(view.help, nullptr) << field.name;
      EXPECT_TRUE(absl::EndsWith(view.help, ".")) << field.name;
      if (view.metric == nullptr) continue;
      EXPECT_TRUE(absl::StartsWith(view.metric, "runnel_")) << view.metric;
      EXPECT_EQ(helps.emplace(view.metric, view.help).first->second, view.help) << view.metric;
      EXPECT_TRUE(places.emplace(view.metric, IsOfLink(field.of), DirectionOf(field.of)).second)
          << view.metric << " would be written twice";
    }
  }
}

// Each row reads and writes a member of its own.
TEST(FigureFields, EachMemberIsOneRow) {
  Telemetry telemetry;
  int64_t next = 0;
  for (const FigureField& field : FigureFields()) {
    std::visit(
        [&](auto member) {
          EXPECT_EQ(telemetry.*member, 0) << field.name << " has the member of another row";
          telemetry.*member = ++next;
        },
        field.member);
  }
}

TEST(FigureFields, SharesAndMeans) {
  Telemetry telemetry;
  telemetry.busy_ns = 250;
  const FigureField* busy = nullptr;
  for (const FigureField& field : FigureFields()) {
    if (absl::string_view(field.name) == "busy_ns") busy = &field;
  }
  ASSERT_NE(busy, nullptr);
  EXPECT_EQ(AsReal(ShownValue(*busy, busy->views[0], telemetry, {1000, 0})), 0.25);
  EXPECT_EQ(AsReal(ShownValue(*busy, busy->views[0], telemetry, {})), 0) << "no time yet";
  EXPECT_EQ(AsReal(ShownValue(*busy, {.scale = FigureScale::kPerSample}, telemetry, {1000, 5})),
            50);
  EXPECT_EQ(Combined(FigureSum::kAdded, int64_t{2}, int64_t{3}), FigureValue(int64_t{5}));
  EXPECT_EQ(Combined(FigureSum::kLargest, 2.0, int64_t{3}), FigureValue(3.0));
}

}  // namespace
}  // namespace runnel::figure_fields_test
