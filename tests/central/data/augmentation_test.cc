#include "central/data/augmentation.h"

#include <algorithm>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::augmentation_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Augmentation Parsed(absl::string_view text) { return Augmentation::Parse(text).value(); }

// 1, 2, 3, ...: no two values are alike.
std::vector<float> Counted(const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<float>(i + 1));
  return values;
}

// The words of SamplePlacement, pixel by pixel.
float Pixel(const Shape& shape, const SamplePlacement& placement, const std::vector<float>& outside,
            const std::vector<float>& in, int64_t channel, int64_t y, int64_t x) {
  const int64_t height = shape[1];
  const int64_t width = shape[2];
  const int64_t row = y + placement.down;
  const int64_t column = (placement.mirrored ? width - 1 - x : x) + placement.right;
  const bool inside = row >= 0 && row < height && column >= 0 && column < width;
  return inside ? in[(channel * height + row) * width + column] : outside[channel];
}

TEST(Augmentation, ReadsWhatItWrites) {
  for (const char* text :
       {"off", "crop", "flip", "shift", "crop,flip", "crop,flip,shift", "erase,mixup"}) {
    EXPECT_EQ(Parsed(text).text(), text);
  }
  EXPECT_EQ(Parsed("flip,crop").text(), "crop,flip");
  EXPECT_TRUE(Parsed("off") == Augmentation());
  for (const char* text : {"", "on", "crop,", "Crop", "off,crop", "rotate"}) {
    const auto parsed = Augmentation::Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr("is not known; there are crop, flip, shift, erase, mixup, or off"));
  }
}

TEST(Augmentation, SuitsImagesOrSignals) {
  const Shape image = {3, 32, 32};
  const Shape signal = {9, 128};
  EXPECT_TRUE(Parsed("crop,flip").CheckFits(image).ok());
  EXPECT_TRUE(Parsed("shift").CheckFits(signal).ok());
  EXPECT_TRUE(Parsed("off").CheckFits(signal).ok());
  EXPECT_THAT(std::string(Parsed("crop,flip").CheckFits(signal).message()),
              HasSubstr("crop is for images, the samples are 9x128"));
  EXPECT_THAT(std::string(Parsed("flip,shift").CheckFits(image).message()),
              HasSubstr("shift is for signals, the samples are 3x32x32"));
  EXPECT_FALSE(Parsed("shift").CheckFits({9, 8}).ok());
  EXPECT_TRUE(Parsed("shift").CheckFits({9, 9}).ok());
}

TEST(Augmentation, CopiesEachPixelFromItsPlace) {
  const std::vector<float> outside = {-1, -2};
  for (const Shape& shape : {Shape{2, 6, 5}, Shape{2, 3, 2}}) {
    const std::vector<float> in = Counted(shape);
    std::vector<float> out(in.size());
    for (int64_t down = -kCropMargin; down <= kCropMargin; ++down) {
      for (int64_t right = -kCropMargin; right <= kCropMargin; ++right) {
        for (const bool mirrored : {false, true}) {
          const SamplePlacement placement = {.down = down, .right = right, .mirrored = mirrored};
          CopyImage(shape, placement, outside, in, absl::MakeSpan(out));
          for (int64_t i = 0; i < shape.elements(); ++i) {
            const int64_t x = i % shape[2];
            const int64_t y = i / shape[2] % shape[1];
            const int64_t channel = i / (shape[1] * shape[2]);
            ASSERT_EQ(out[i], Pixel(shape, placement, outside, in, channel, y, x))
                << down << " " << right << " " << mirrored << " at " << i;
          }
        }
      }
    }
  }
}

TEST(Augmentation, ShiftsEachChannelAndRepeatsItsEnd) {
  const Shape shape = {2, 9};
  const std::vector<float> in = Counted(shape);
  std::vector<float> out(in.size());
  for (int64_t later = -kMaxShift; later <= kMaxShift; ++later) {
    CopySignal(shape, {.later = later}, in, absl::MakeSpan(out));
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const int64_t channel = i / shape[1];
      const int64_t from = std::clamp<int64_t>(i % shape[1] + later, 0, shape[1] - 1);
      ASSERT_EQ(out[i], in[channel * shape[1] + from]) << later << " at " << i;
    }
  }
}

TEST(SamplePlacement, IsAFunctionOfSeedEpochAndSample) {
  const Augmentation all = Parsed("crop,flip,shift");
  const auto of = [&](uint64_t seed, int64_t epoch) {
    std::vector<SamplePlacement> placements;
    for (int64_t sample = 0; sample < 20; ++sample) {
      placements.push_back(DrawPlacement(all, seed, epoch, sample));
    }
    return placements;
  };
  EXPECT_EQ(of(1, 0), of(1, 0));
  EXPECT_NE(of(1, 0), of(2, 0));
  EXPECT_NE(of(1, 0), of(1, 1));
  EXPECT_NE(of(1, 0)[0], of(1, 0)[1]);
}

// Every augmented run on record depends on these draws. A transform's draws do not depend on which
// others are used.
TEST(SamplePlacement, Golden) {
  const Augmentation all = Parsed("crop,flip,shift");
  const auto numbers = [](const SamplePlacement& p) {
    return std::vector<int64_t>{p.down, p.right, p.mirrored ? 1 : 0, p.later};
  };
  EXPECT_THAT(numbers(DrawPlacement(all, 1, 0, 0)), ElementsAre(-1, -3, 0, 6));
  EXPECT_THAT(numbers(DrawPlacement(all, 1, 0, 49999)), ElementsAre(-1, -1, 1, 8));
  EXPECT_THAT(numbers(DrawPlacement(all, 1, 199, 0)), ElementsAre(0, 3, 1, 5));
  const SamplePlacement whole = DrawPlacement(all, 1, 199, 0);
  EXPECT_EQ(DrawPlacement(Parsed("shift"), 1, 199, 0), SamplePlacement{.later = whole.later});
  EXPECT_EQ(DrawPlacement(Parsed("flip"), 1, 199, 0), SamplePlacement{.mirrored = whole.mirrored});
  EXPECT_EQ(DrawPlacement(Parsed("off"), 1, 199, 0), SamplePlacement());
}

TEST(Augmentation, ErasuresLieInsideAndMixesAreEven) {
  const Shape shape = {3, 16, 40};
  int erased = 0;
  std::map<int64_t, int> heights;
  double parts = 0, others = 0;
  constexpr int kDraws = 8000;
  for (int64_t sample = 0; sample < kDraws; ++sample) {
    const Rectangle hole = DrawErasure(shape, 3, 5, sample);
    const Mix mix = DrawMix(100, 3, 5, sample);
    parts += mix.parts, others += static_cast<double>(mix.other);
    EXPECT_TRUE(mix.parts > 0 && mix.parts < 512 && mix.other >= 0 && mix.other < 100);
    if (hole == Rectangle()) continue;
    ++erased, ++heights[hole.height];
    EXPECT_TRUE(hole.top >= 0 && hole.top + hole.height <= 16);
    EXPECT_TRUE(hole.left >= 0 && hole.left + hole.width <= 40);
    EXPECT_TRUE(hole.width >= 5 && hole.width <= 20);
  }
  // 4.5 standard deviations.
  EXPECT_NEAR(erased, kDraws / 2, 202);
  EXPECT_EQ(heights.begin()->first, 2);
  EXPECT_EQ(heights.rbegin()->first, 8);
  EXPECT_NEAR(parts / kDraws, 256, 7.5);
  EXPECT_NEAR(others / kDraws, 49.5, 1.5);
}

// Mixed and erased runs on record depend on these.
TEST(Augmentation, GoldenErasureAndMix) {
  const Shape shape = {3, 32, 32};
  EXPECT_EQ(DrawErasure(shape, 1, 0, 0), Rectangle());
  EXPECT_EQ(DrawErasure(shape, 1, 0, 2), (Rectangle{16, 0, 4, 12}));
  EXPECT_EQ(DrawMix(50000, 1, 0, 0), (Mix{19910, 120}));
  // tests/golden/augmentation.py prints these.
  struct Case {
    Shape shape;
    uint64_t seed;
    int64_t epoch, sample;
    Rectangle hole;
    Mix mix;
  };
  const int64_t large = int64_t{1} << 32;
  const Case cases[] = {
      {{1, 16, 40}, 3, 5, 10, {1, 27, 3, 13}, {5542, 215}},
      {{3, 7, 9}, (uint64_t{1} << 40) + 5, 199, 50002, {0, 2, 2, 3}, {32498, 206}},
      {{3, 224, 96}, 9, 2 * large, large + 4, {14, 27, 80, 47}, {41070, 496}},
      {{1, 1, 1}, 4, 0, 4, {0, 0, 1, 1}, {41321, 75}},
      {{2, 5, 3}, 4, 0, 9, {3, 2, 1, 1}, {2690, 227}},
      {{1, 16, 40}, 3, 5, 7, {}, {45074, 389}},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(DrawErasure(one.shape, one.seed, one.epoch, one.sample), one.hole) << one.sample;
    EXPECT_EQ(DrawMix(60000, one.seed, one.epoch, one.sample), one.mix) << one.sample;
  }
  // By hand: 128 of 512 parts are a quarter; the hole of two channels, each with its black.
  std::vector<float> image = {0, 1, 2, 3, 4, 5, 6, 7};
  MixInto(128, std::vector<float>{8, 8, 8, 8, 0, 0, 0, 0}, absl::MakeSpan(image));
  EXPECT_THAT(image, ElementsAre(6, 6.25, 6.5, 6.75, 1, 1.25, 1.5, 1.75));
  Erase({2, 2, 2}, {.top = 1, .left = 0, .height = 1, .width = 2}, std::vector<float>{-1, -2},
        absl::MakeSpan(image));
  EXPECT_THAT(image, ElementsAre(6, 6.25, -1, -1, 1, 1.25, -2, -2));
}

TEST(SamplePlacement, FavoursNothing) {
  const Augmentation all = Parsed("crop,flip,shift");
  std::map<int64_t, int> down;
  std::map<int64_t, int> right;
  std::map<int64_t, int> later;
  int mirrored = 0;
  constexpr int kDraws = 15300;
  for (int64_t sample = 0; sample < kDraws; ++sample) {
    const SamplePlacement placement = DrawPlacement(all, 3, 5, sample);
    ++down[placement.down];
    ++right[placement.right];
    ++later[placement.later];
    mirrored += placement.mirrored ? 1 : 0;
  }
  // 4.5 standard deviations of a share p of n draws: 4.5 sqrt(n p (1 - p)).
  EXPECT_NEAR(mirrored, kDraws / 2, 278);
  for (const auto* counts : {&down, &right}) {
    EXPECT_EQ(counts->size(), 9u);
    EXPECT_EQ(counts->begin()->first, -kCropMargin);
    for (const auto& [offset, count] : *counts) EXPECT_NEAR(count, kDraws / 9, 175) << offset;
  }
  EXPECT_EQ(later.size(), 17u);
  EXPECT_EQ(later.begin()->first, -kMaxShift);
  for (const auto& [offset, count] : later) EXPECT_NEAR(count, kDraws / 17, 131) << offset;
}

}  // namespace
}  // namespace runnel::augmentation_test
