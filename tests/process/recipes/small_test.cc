// Backend small in real processes: LeNet trains, whatever the tiles and kernels; what it lacks is
// refused by name. Recipes of halves: halves_test.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::small_test {
namespace {

// clang-format off
const Words kTrain = {"train", "--model", "lenet", "--dataset", "synthetic_digits", "--batch-size", "4",
                      "--eval-every", "-1", "--schedule", "sync_1f1b", "--micro-batches", "2",
                      "--max-batches", "4", "--backend", "small"};
// clang-format on

TEST(Small, TrainsWithTheSameBytesWhateverTheTilesAndKernels) {
  const std::string want = Weights(With(kTrain, {"--local-workers", "2"}));
  EXPECT_EQ(want.size(), 64);
  EXPECT_EQ(Weights(With(kTrain, {"--local-workers", "1", "--backend-option", "small.l1_kb=16",
                                  "--backend-option", "small.kernels=naive"})),
            want);
}

// Other sums, and so other weights than ref's; the same on any number of stages and with any tiles.
TEST(Small, TrainsWithSumsOfF16) {
  const Words halves = With(kTrain, {"--recipe", "fp16"});
  const Words own = With(halves, {"--backend-option", "small.sums=fp16"});
  const std::string want = Weights(With(own, {"--local-workers", "2"}));
  EXPECT_EQ(want.size(), 64);
  EXPECT_EQ(Weights(With(own, {"--local-workers", "1", "--backend-option", "small.l1_kb=16",
                               "--backend-option", "small.kernels=naive"})),
            want);
  EXPECT_NE(Weights(With(halves, {"--local-workers", "1"})), want);
}

TEST(Small, RefusesByNameWhatItDoesNotOffer) {
  // The worker logs it too.
  Process integers(
      With({"runnel-central"}, With(kTrain, {"--local-workers", "1", "--recipe", "niti"})));
  EXPECT_EQ(integers.Wait(), 2);
  EXPECT_THAT(
      integers.err(),
      testing::HasSubstr("backend small has no quantize (layer 0, op 0); take --backend cpu"));
  ExpectRefused(With(kTrain, {"--local-workers", "1", "--backend-option", "small.l1_kb=48"}),
                "small.l1_kb '48': there is 16, 32, 64, 128, 256");
}

}  // namespace
}  // namespace runnel::small_test
