#include "worker/stash.h"

#include "gtest/gtest.h"
#include "proto/base/random.h"

namespace runnel {
namespace {

MicroBatch Place(int64_t sequence) {
  MicroBatch place;
  place.sequence = Sequence(sequence);
  return place;
}

void Step(Stash& stash, int64_t version) {
  std::byte* next = stash.NextVersion();
  *reinterpret_cast<int64_t*>(next) = version;
  stash.Publish();
}

int64_t VersionAt(const std::byte* weights) { return *reinterpret_cast<const int64_t*>(weights); }

TEST(Stash, BackwardSeesTheVersionOfItsForward) {
  // Against a plain model: random 1F1B orders with random caps.
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const CounterRandom random(seed, RandomPurpose::kTest, 0, 0);
    const int64_t cap = 1 + random.Below(0, 6);
    Stash stash(64, 64);
    std::deque<int64_t> expected;
    int64_t version = 0, sequence = 0;
    for (int i = 1; i < 200; ++i) {
      const bool forward = expected.empty() ||
                           (static_cast<int64_t>(expected.size()) < cap && random.Below(i, 2) == 0);
      if (forward) {
        const Stash::Entry& entry = stash.Push(Place(sequence++));
        EXPECT_EQ(VersionAt(stash.weights(entry)), version);
        expected.push_back(version);
      } else {
        EXPECT_EQ(VersionAt(stash.weights(stash.Oldest())), expected.front());
        stash.Pop();
        expected.pop_front();
        Step(stash, ++version);
      }
      EXPECT_EQ(VersionAt(stash.newest()), version);
      ASSERT_LE(stash.live_versions(), cap + 1);
    }
    // Memory does not grow with time: at most a version and a stash for each micro-batch in flight,
    // and one more version.
    EXPECT_LE(stash.held_bytes(), 64 * (cap + 1) + 64 * cap);
  }
}

TEST(Stash, StepsInPlaceWhenNobodyUsesTheNewest) {
  Stash stash(64, 64);
  stash.Push(Place(0));
  stash.Pop();
  EXPECT_EQ(stash.NextVersion(), stash.newest());
  stash.Push(Place(1));
  EXPECT_NE(stash.NextVersion(), stash.newest());
}

TEST(Stash, WeightsOfItsOwnAreNobodyElses) {
  Stash stash(64, 64);
  Step(stash, 1);
  const Stash::Entry& first = stash.Push(Place(0));
  const Stash::Entry& second = stash.PushWithOwnWeights(Place(1));
  *reinterpret_cast<int64_t*>(stash.weights(second)) = 100;
  EXPECT_EQ(VersionAt(stash.weights(first)), 1);
  EXPECT_EQ(VersionAt(stash.newest()), 1);
  stash.Pop();
  Step(stash, 2);
  EXPECT_EQ(VersionAt(stash.newest()), 2);
  EXPECT_EQ(VersionAt(stash.weights(stash.Oldest())), 100);
  // They are no published version.
  EXPECT_EQ(stash.NewestVersions(1).size(), 1U);
  EXPECT_TRUE(stash.NewestVersions(2).empty());
}

TEST(Stash, NewestVersionsAreThoseWithoutAGap) {
  Stash stash(64, 64);
  stash.Push(Place(0));  // version 0
  stash.Push(Place(1));  // version 0
  EXPECT_TRUE(stash.NewestVersions(2).empty());
  stash.Pop();
  Step(stash, 1);
  stash.Push(Place(2));  // version 1
  std::vector<const std::byte*> versions = stash.NewestVersions(2);
  ASSERT_EQ(versions.size(), 2U);
  EXPECT_EQ(VersionAt(versions[0]), 1);
  EXPECT_EQ(VersionAt(versions[1]), 0);
  stash.Pop();
  Step(stash, 2);
  Step(stash, 3);  // 2 is no more: 1 and 3 live
  EXPECT_EQ(stash.live_versions(), 2);
  EXPECT_TRUE(stash.NewestVersions(2).empty());
}

}  // namespace
}  // namespace runnel
