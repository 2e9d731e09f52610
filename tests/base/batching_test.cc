#include "proto/base/training/batching.h"

#include "gtest/gtest.h"

namespace runnel::batching_test {
namespace {

TEST(Batching, CoversEachEpochOnce) {
  // samples, batch, micro-batches, least samples
  const int64_t cases[][4] = {{1000, 64, 1, 1}, {1000, 64, 4, 1}, {100, 64, 4, 2},
                              {7, 64, 3, 1},    {65, 64, 4, 1},   {10, 3, 5, 1},
                              {129, 128, 4, 1}, {130, 128, 4, 2}};
  for (const auto& c : cases) {
    const Batching batching = Batching::Create(c[0], c[1], c[2], c[3]).value();
    int64_t expected_sample = 0;
    int64_t step_samples = 0;
    for (int64_t s = 0; s < 2 * batching.sequences_per_epoch(); ++s) {
      const MicroBatch place = batching.Locate(Sequence(s));
      if (place.first_in_epoch) expected_sample = 0;
      if (place.first_in_step) step_samples = 0;
      ASSERT_EQ(place.first_sample, expected_sample)
          << c[0] << " " << c[1] << " " << c[2] << " sequence " << s;
      ASSERT_GE(place.samples, c[3]);
      ASSERT_EQ(place.first_in_step, batching.FirstSequence(place.step) == place.sequence);
      ASSERT_EQ(place.epoch, s / batching.sequences_per_epoch());
      expected_sample += place.samples;
      step_samples += place.samples;
      if (place.last_in_step) {
        ASSERT_EQ(step_samples, place.step_samples);
        ASSERT_EQ(batching.FirstSequence(place.step + 1).value(), s + 1);
      }
      if (s + 1 == batching.sequences_per_epoch()) {
        ASSERT_EQ(expected_sample, c[0]);
      }
    }
  }
}

TEST(Batching, DropsASingleLastSampleWhereBatchNormCannotTrainOnIt) {
  const Batching batching = Batching::Create(129, 128, 1, 2).value();
  EXPECT_EQ(batching.steps_per_epoch(), 1);
  EXPECT_EQ(Batching::Create(129, 128, 1, 1)->steps_per_epoch(), 2);
}

TEST(Batching, NamesTheSizesThatShapesAreAgreedOnFor) {
  EXPECT_EQ(Batching::Create(1000, 64, 1, 1)->MicroBatchSizes(), (std::vector<int64_t>{64, 40}));
  EXPECT_EQ(Batching::Create(1000, 66, 4, 1)->MicroBatchSizes(),
            (std::vector<int64_t>{17, 16, 3, 2}));
  EXPECT_EQ(Batching::Create(128, 64, 4, 1)->MicroBatchSizes(), (std::vector<int64_t>{16}));
}

TEST(Batching, RefusesWhatCannotBe) {
  EXPECT_FALSE(Batching::Create(10, 0, 1, 1).ok());
  EXPECT_FALSE(Batching::Create(10, -3, 1, 1).ok());
  EXPECT_FALSE(Batching::Create(10, 4, 0, 1).ok());
  EXPECT_FALSE(Batching::Create(0, 4, 1, 1).ok());
  EXPECT_FALSE(Batching::Create(10, 1, 1, 2).ok());
}

}  // namespace
}  // namespace runnel::batching_test
