// Latents that are kept for replay: their codes, the file, who is in the memory, how batches mix.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "central/data/batch_source.h"
#include "central/data/latents/latent_set.h"
#include "central/data/latents/latent_types.h"
#include "central/data/latents/mixed_order.h"
#include "central/data/latents/replay_draws.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace runnel::latents_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Normals(size_t count, uint64_t sequence) {
  const CounterRandom random(5, RandomPurpose::kTest, 0, sequence);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(3 * random.Normal(i));
  return values;
}

std::vector<float> ThereAndBack(const LatentType& type, const std::vector<float>& values) {
  std::string codes(static_cast<size_t>(type.Bytes(std::ssize(values))), '\x55');
  type.encode(values, codes.data());
  std::vector<float> back(values.size());
  type.decode(codes.data(), absl::MakeSpan(back));
  return back;
}

TEST(LatentTypes, AreAsNearAsTheyPromise) {
  for (uint64_t sample = 0; sample < 50; ++sample) {
    std::vector<float> values = Normals(301, sample);
    if (sample % 2 == 0) {
      for (float& value : values) value = std::max(value, 0.0f);  // behind a relu
    }
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const double scale = (static_cast<double>(*high) - static_cast<double>(*low)) / 255;
    const std::vector<float> bytes = ThereAndBack(**FindLatentType("int8"), values);
    const std::vector<float> halves = ThereAndBack(**FindLatentType("fp16"), values);
    EXPECT_EQ(ThereAndBack(**FindLatentType("fp32"), values), values);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(bytes[i], values[i], scale / 2 * 1.00001);
      ASSERT_NEAR(halves[i], values[i], std::abs(values[i]) * 0x1p-11 + 0x1p-25);
      if (sample % 2 == 0 && values[i] == 0) {
        ASSERT_EQ(bytes[i], 0);
      }
    }
  }
}

TEST(LatentTypes, TakeWhatHasNoRange) {
  const LatentType& type = **FindLatentType("int8");
  EXPECT_EQ(ThereAndBack(type, {-2.5f, -2.5f}), (std::vector<float>{-2.5f, -2.5f}));
  const std::vector<float> wide = ThereAndBack(type, {-3e38f, 3e38f});
  EXPECT_FLOAT_EQ(wide[0], -3e38f);
  EXPECT_FLOAT_EQ(wide[1], 3e38f);
  EXPECT_THAT(ThereAndBack(**FindLatentType("fp16"), {1e6f, -1e6f}), ElementsAre(65504, -65504));
  EXPECT_EQ(type.Bytes(1000), 1008);
  EXPECT_THAT(std::string(FindLatentType("int4").status().message()),
              HasSubstr("there are fp32, fp16, int8"));
}

LatentSet SetOf(const char* type, int64_t samples) {
  LatentSet set(*FindLatentType(type), Shape{2, 3}, 4);
  for (int64_t i = 0; i < samples; ++i)
    EXPECT_TRUE(set.Add(Normals(6, static_cast<uint64_t>(i)), static_cast<int32_t>(i % 4)).ok());
  return set;
}

TEST(LatentSet, TheFileIsTheSet) {
  for (const LatentType& type : LatentTypes()) {
    LatentSet set = SetOf(type.name.data(), 5);
    set.new_samples = 2;
    set.session = 3;
    const auto read = LatentSet::Parse(set.Serialize());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, set);
    LatentSet part(&type, Shape{2, 3}, 4);
    part.AddFrom(set, {4, 1});
    EXPECT_THAT(part.labels(), ElementsAre(0, 1));
    std::vector<float> from(6), copy(6);
    set.Decode(4, absl::MakeSpan(from));
    part.Decode(0, absl::MakeSpan(copy));
    EXPECT_EQ(copy, from);
  }
}

TEST(LatentSet, DamagedBytesAreRefused) {
  const std::string whole = SetOf("int8", 3).Serialize();
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(LatentSet::Parse(whole.substr(0, length)).ok()) << length;
  EXPECT_FALSE(LatentSet::Parse(whole + "x").ok());
  // Each number of the header as large as can be.
  for (size_t at = 8; at < 8 + 48 + 16; at += 8) {
    std::string wrong = whole;
    std::fill_n(wrong.begin() + static_cast<std::ptrdiff_t>(at), 7, '\xff');
    wrong[at + 7] = '\x7f';
    const bool is_session = at == 8 + 8 + 8;
    EXPECT_EQ(LatentSet::Parse(wrong).ok(), is_session) << at;
  }
  LatentSet set = SetOf("fp32", 1);
  EXPECT_FALSE(set.Add({1, 2, 3, 4, 5, INFINITY}, 0).ok());
  EXPECT_FALSE(set.Add({1, 2, 3, 4, 5, 6}, 4).ok());
  EXPECT_FALSE(set.Add({1, 2, 3}, 0).ok());
  EXPECT_EQ(set.size(), 1);
}

TEST(ReplayDraws, EachClassHasAsManyAndNoOtherHasAny) {
  std::vector<int32_t> labels;
  for (int i = 0; i < 1000; ++i) labels.push_back(i % 7 == 0 ? 3 : i % 5);
  const std::vector<int64_t> drawn = DrawByClass(labels, {0, 3, 4}, 20, 1, ReplayDraw::kFill, 1);
  EXPECT_TRUE(std::is_sorted(drawn.begin(), drawn.end()));
  EXPECT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()).size(), 60u);
  std::map<int32_t, int> counts;
  for (const int64_t index : drawn) ++counts[labels[static_cast<size_t>(index)]];
  EXPECT_EQ(counts, (std::map<int32_t, int>{{0, 20}, {3, 20}, {4, 20}}));
  EXPECT_EQ(drawn, DrawByClass(labels, {4, 0, 3}, 20, 1, ReplayDraw::kFill, 1));
  EXPECT_NE(drawn, DrawByClass(labels, {0, 3, 4}, 20, 2, ReplayDraw::kFill, 1));
  EXPECT_NE(drawn, DrawByClass(labels, {0, 3, 4}, 20, 1, ReplayDraw::kFill, 2));
  EXPECT_NE(drawn, DrawByClass(labels, {0, 3, 4}, 20, 1, ReplayDraw::kKeep, 1));
  // More than there are: all, as they lie.
  std::vector<int64_t> all(labels.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(DrawByClass(labels, {0, 1, 2, 3, 4}, 5000, 1, ReplayDraw::kFill, 1), all);
}

TEST(ReplayDraws, FavourNobody) {
  const std::vector<int32_t> labels(10, 0);
  std::vector<int> counts(10);
  for (int64_t session = 0; session < 3000; ++session) {
    for (const int64_t i : DrawByClass(labels, {0}, 3, 7, ReplayDraw::kKeep, session))
      ++counts[static_cast<size_t>(i)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 900, 120);  // 4.8 deviations
}

int64_t NewIn(const std::vector<int64_t>& order, int64_t first, int64_t count, int64_t is_below) {
  return std::count_if(order.begin() + first, order.begin() + first + count,
                       [&](int64_t index) { return index < is_below; });
}

TEST(MixedOrder, EachBatchHasItsShareAndEachSampleComesOnce) {
  for (const auto& [fresh, memory, batch] : std::vector<std::array<int64_t, 3>>{
           {100, 500, 128}, {100, 495, 32}, {3, 997, 16}, {500, 100, 64}, {7, 9, 1}, {1, 1, 128}}) {
    const int64_t samples = fresh + memory;
    const std::vector<int64_t> order = MixedOrder({samples, fresh, 2}, batch, 11, 4);
    std::vector<int64_t> sorted = order, all(static_cast<size_t>(samples));
    std::sort(sorted.begin(), sorted.end());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all);
    const auto share = std::max<int64_t>(
        1, std::llround(static_cast<double>(batch * fresh) / static_cast<double>(samples)));
    int64_t left = fresh;
    for (int64_t first = 0; first + batch <= samples; first += batch) {
      const int64_t there = NewIn(order, first, batch, fresh);
      const int64_t replayed = samples - first - left;
      EXPECT_EQ(there, std::max(std::min(share, left), batch - replayed)) << fresh << " " << first;
      left -= there;
    }
  }
}

TEST(MixedOrder, MicroBatchesHaveThemAlike) {
  const std::vector<int64_t> order = MixedOrder({600, 100, 1}, 128, 11, 4);
  for (int64_t part = 0; part < 4; ++part)
    EXPECT_NEAR(NewIn(order, part * 32, 32, 100), 21.0 / 4, 1) << part;
}

TEST(MixedOrder, OfOneKindItIsThatOfAnyRun) {
  EXPECT_EQ(MixedOrder({103, 0, 0}, 16, 7, 3), EpochPermutation(103, 7, 3));
  EXPECT_EQ(MixedOrder({103, 103, 2}, 16, 7, 3), EpochPermutation(103, 7, 3, 2));
  EXPECT_NE(EpochPermutation(103, 7, 3, 2), EpochPermutation(103, 7, 3));
  EXPECT_NE(MixedOrder({103, 20, 2}, 16, 7, 3), MixedOrder({103, 20, 3}, 16, 7, 3));
  EXPECT_THAT(MixedOrder({10, 3, 1}, 5, 1, 0), ElementsAre(4, 5, 1, 9, 2, 7, 8, 3, 6, 0));
}

}  // namespace
}  // namespace runnel::latents_test
