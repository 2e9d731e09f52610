// What the emulator counts for whole kernels at the layers of VGG-11: packets, which are exact and
// repeatable but no time. They may not rise by more than 2 % over what is written here. Skipped
// where there is no emulator.
//
// RUNNEL_DSP_COUNTS_BATCH=N: prints the counts at another batch, which are held against nothing.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "tests/kernels/hexagon/vgg_layers.h"

namespace runnel::hexagon::hexagon_counts_test {
namespace {

// Of vrmpy that a layer needs, to packets: a packet holds two. c1 and fc are too small for it.
constexpr double kWhole = 1.7;

struct Row {
  Layer layer;
  Pass pass;
  int batch;  // enough for whole tiles of lanes, and for blocks as deep as in training
  uint32_t packets;
  uint32_t packing;  // of the weights, once a version
  double least_ratio;
  uint32_t kept = 0;  // packets of the same with kRescale in it, its scale kept
};

// clang-format off
constexpr Row kRows[] = {
    {kC1, Pass::kForward, 1, 25842, 791, 0},
    {kC1, Pass::kWeightGradient, 4, 83729, 0, 0},
    {kC2, Pass::kForward, 4, 331022, 4785, kWhole},
    {kC2, Pass::kInputGradient, 4, 338363, 24101, kWhole},
    {kC2, Pass::kWeightGradient, 16, 1383559, 0, kWhole},
    {kC3, Pass::kForward, 8, 621369, 15935, kWhole},
    {kC3, Pass::kInputGradient, 8, 634626, 60813, kWhole},
    {kC3, Pass::kWeightGradient, 16, 1302182, 0, kWhole},
    {kC4, Pass::kForward, 8, 1238683, 30452, kWhole, 1270861},
    {kC4, Pass::kInputGradient, 8, 1238688, 94904, kWhole, 1270866},
    {kC4, Pass::kWeightGradient, 16, 2582842, 0, kWhole},
    {kC5, Pass::kForward, 8, 624559, 61113, kWhole},
    {kC5, Pass::kInputGradient, 8, 622386, 189512, kWhole},
    {kC5, Pass::kWeightGradient, 32, 2592317, 0, kWhole},
    {kC6, Pass::kForward, 8, 1228381, 119433, kWhole, 1236165},
    {kC6, Pass::kInputGradient, 8, 1228386, 331444, kWhole},
    {kC6, Pass::kWeightGradient, 32, 5158989, 0, kWhole},
    {kC7, Pass::kForward, 32, 1241347, 119433, kWhole, 1254353},
    {kC7, Pass::kInputGradient, 32, 1241352, 331444, kWhole},
    {kC7, Pass::kWeightGradient, 64, 2727085, 0, kWhole},
    {kFc, Pass::kForward, 64, 10836, 976, 0},
    {kFc, Pass::kInputGradient, 64, 6845, 405, 0},
    {kFc, Pass::kWeightGradient, 64, 5727, 0, 0},
    {kLinear, Pass::kForward, 64, 75989, 13302, kWhole, 84739},
    {kLinear, Pass::kInputGradient, 64, 76906, 10905, kWhole},
    {kLinear, Pass::kWeightGradient, 64, 103492, 0, 0},
};
// clang-format on

class HexagonCounts : public testing::TestWithParam<Row> {};

void ExpectNear(uint32_t packets, uint32_t written, const char* what) {
  EXPECT_LE(packets, written * 1.02) << what;
  EXPECT_GE(packets, written * 0.98) << what << ": better, write the new count here";
}

TEST_P(HexagonCounts, PacketsDoNotRise) {
  auto command = FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  auto session = OpenEmulatedSession({.command = *std::move(command), .shared_bytes = 512 << 20});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto& [layer, pass, usual_batch, packets, packing, least_ratio, kept] = GetParam();
  const char* asked = std::getenv("RUNNEL_DSP_COUNTS_BATCH");
  const int batch = asked == nullptr ? usual_batch : std::atoi(asked);
  LayerBench bench(*(*session)->memory());
  const DspOp op = bench.MakeOp(layer, pass, batch);
  const DspOp small = bench.MakeOp(layer, pass, 1);
  // The first one packs the weights.
  ASSERT_TRUE((*session)->Submit({small, small, op}).ok());
  ASSERT_TRUE((*session)->Wait().ok());
  const std::vector<DspCounts> counts((*session)->counts().begin(), (*session)->counts().end());
  const uint32_t packed = counts[0].packets - counts[1].packets;
  const int window = layer.side == 0 ? 1 : 9, plane = layer.side == 0 ? 1 : layer.side * layer.side;
  const double products = 1.0 * batch * plane * layer.in * layer.out * window / 128;
  const double ratio = products / counts[2].packets;
  std::printf(
      "%s %s, batch %d: %u packets emulated and %u to pack weights, %.2f vrmpy a packet, %.2f with "
      "both\n",
      layer.name, kPassNames[static_cast<int>(pass)], batch, counts[2].packets, packed, ratio,
      products / (counts[2].packets + packed));
  if (asked == nullptr) {
    ExpectNear(counts[2].packets, packets, "packets");
    EXPECT_NEAR(packed, packing, packing * 0.02) << "packing";
    EXPECT_GE(ratio, least_ratio);
  }
  if (kept == 0) return;
  DspOp rescale;
  rescale.code = DspCode::kRescale;
  rescale.in[0] = op.out[0];
  rescale.out[0] = bench.MakeTensor(op.out[0].elements, 1, 0);
  DspOp in_one = op;
  in_one.flags = kFlagRescaled | kFlagKept;
  in_one.shift = 5;
  in_one.out[0] = rescale.out[0];
  ASSERT_TRUE((*session)->Submit({rescale, in_one}).ok());
  ASSERT_TRUE((*session)->Wait().ok());
  const absl::Span<const DspCounts> rescaled = (*session)->counts();
  std::printf("  with kRescale %u packets, with a kept scale %u\n",
              counts[2].packets + rescaled[0].packets, rescaled[1].packets);
  if (asked == nullptr) ExpectNear(rescaled[1].packets, kept, "packets with a kept scale");
}

// A gradient of so many bytes an element is added to a total, or a weight stepped by it.
struct GradientRow {
  const char* name;
  DspCode code;
  uint32_t bytes;
  bool accumulates;
  int32_t difference;  // the total's exponent less the gradient's
  uint32_t packets;    // of 65536 elements
};
constexpr GradientRow kGradientRows[] = {
    {"first", DspCode::kAddScaledGradient, 4, false, 0, 13395},
    {"first_of_64_bits", DspCode::kAddScaledGradient, 8, false, 0, 15445},
    {"equal", DspCode::kAddScaledGradient, 4, true, 0, 18520},
    {"equal_of_64_bits", DspCode::kAddScaledGradient, 8, true, 0, 22105},
    {"gradient_below", DspCode::kAddScaledGradient, 4, true, 3, 21588},
    {"gradient_below_of_64_bits", DspCode::kAddScaledGradient, 8, true, 3, 34897},
    {"gradient_far_below", DspCode::kAddScaledGradient, 8, true, 40, 30804},
    {"total_below", DspCode::kAddScaledGradient, 4, true, -3, 25176},
    {"total_below_of_64_bits", DspCode::kAddScaledGradient, 8, true, -3, 34898},
    {"total_far_below", DspCode::kAddScaledGradient, 4, true, -40, 23640},
    {"update", DspCode::kUpdate, 4, false, 0, 14792},
    {"update_of_64_bits", DspCode::kUpdate, 8, false, 0, 20674},
};

class HexagonGradientCounts : public testing::TestWithParam<GradientRow> {};

TEST_P(HexagonGradientCounts, PacketsDoNotRise) {
  auto command = FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  auto session = OpenEmulatedSession({.command = *std::move(command)});
  ASSERT_TRUE(session.ok()) << session.status();
  constexpr uint32_t kElements = 65536;
  const GradientRow& row = GetParam();
  LayerBench bench(*(*session)->memory());
  DspOp op;
  op.code = row.code;
  const DspTensor gradient = bench.MakeScaled(kElements, row.bytes, 0);
  op.in[0] = op.in[1] = gradient;
  if (row.code == DspCode::kUpdate) {
    op.in[0] = op.out[0] = bench.MakeScaled(kElements, 1, 0);
  } else {
    op.out[0] = bench.MakeScaled(kElements, 8, row.difference);
  }
  op.gradient_bits = 7;
  if (row.accumulates) op.flags = kFlagAccumulate;
  ASSERT_TRUE((*session)->Submit({op}).ok());
  ASSERT_TRUE((*session)->Wait().ok());
  const uint32_t packets = (*session)->counts()[0].packets;
  std::printf("%s: %u packets, %.2f an element\n", row.name, packets, 1.0 * packets / kElements);
  ExpectNear(packets, row.packets, "packets");
}

INSTANTIATE_TEST_SUITE_P(Loops, HexagonGradientCounts, testing::ValuesIn(kGradientRows),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Layers, HexagonCounts, testing::ValuesIn(kRows), [](const auto& info) {
  return std::string(info.param.layer.name) + "_" + kPassNames[static_cast<int>(info.param.pass)];
});

}  // namespace
}  // namespace runnel::hexagon::hexagon_counts_test
