#include "proto/base/figures/figure_fields.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>

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
      // Or a name that OpenTelemetry's conventions give it.
      const bool is_common =
          absl::StartsWith(view.metric, "hw_") || absl::StartsWith(view.metric, "process_");
      EXPECT_TRUE(is_common || absl::StartsWith(view.metric, "runnel_")) << view.metric;
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
          EXPECT_EQ(AsReal(ShownValue(field, {}, telemetry, {})), 0)
              << field.name << " has the member of another row";
          if constexpr (std::is_same_v<decltype(member), Histogram Telemetry::*>) {
            (telemetry.*member).Add(++next);
          } else {
            telemetry.*member = ++next;
          }
        },
        field.member);
  }
}

TEST(Histogram, ABoundBelongsToTheClassBelowIt) {
  Histogram histogram;
  histogram.Add(0);
  histogram.Add(300'000);
  histogram.Add(300'001);
  histogram.Add(60'000'000'000);
  EXPECT_EQ(histogram.counts.front(), 2);
  EXPECT_EQ(histogram.counts[1], 1);
  EXPECT_EQ(histogram.counts.back(), 1) << "longer than all bounds";
  EXPECT_EQ(histogram.count(), 4);
  EXPECT_EQ(histogram.sum_ns, 60'000'600'001);
}

TEST(FigureFields, AHistogramIsAFigureOfItsTime) {
  Telemetry telemetry;
  telemetry.forward_times.Add(250);
  const absl::Span<const FigureField> fields = FigureFields();
  const auto forward = std::find_if(fields.begin(), fields.end(), [](const FigureField& field) {
    return absl::string_view(field.name) == "forward_times";
  });
  ASSERT_NE(forward, fields.end());
  EXPECT_EQ(
      AsReal(ShownValue(*forward, {.scale = FigureScale::kShareOfTime}, telemetry, {1000, 0})),
      0.25);
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
