// Which check-point best.runnel is, in whatever order files and accuracies come.

#include "central/run/checkpoints/best_checkpoint.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/process/atomic_file.h"
#include "tests/support/scratch.h"

namespace runnel::best_checkpoint_test {
namespace {

class BestCheckpointTest : public ::testing::Test {
 protected:
  // As the writer does: the newest two files stay.
  std::string Write(int64_t step) {
    const std::string path = dir_ / absl::StrCat("checkpoint-", step, ".runnel");
    std::ofstream(path) << step;
    std::filesystem::remove(dir_ / absl::StrCat("checkpoint-", step - 20, ".runnel"));
    return path;
  }
  std::string Best() { return ReadWholeFile(dir_ / "best.runnel", 100).value_or("none"); }
  int Files() {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(dir_ / ""),
                                          std::filesystem::directory_iterator()));
  }

  ScratchDir dir_;
};

TEST_F(BestCheckpointTest, IsTheOneWithTheHighestAccuracy) {
  BestCheckpoint best(dir_ / "");
  const double accuracies[] = {0.5, 0.7, 0.6, 0.7, 0.8};
  const char* expected[] = {"10", "20", "20", "20", "50"};
  for (int i = 0; i < 5; ++i) {
    const int64_t step = 10 * (i + 1);
    if (i % 2 == 0) best.Evaluated(step, accuracies[i]);
    best.Written(step, Write(step));
    if (i % 2 == 1) best.Evaluated(step, accuracies[i]);
    EXPECT_EQ(Best(), expected[i]) << step;
  }
  EXPECT_EQ(Files(), 2 + 2);
  EXPECT_EQ(ReadWholeFile(dir_ / "best.json", 100).value(), "{\"step\":50,\"accuracy\":0.8}");
}

TEST_F(BestCheckpointTest, MayBeKnownWhenItsFileHadToGo) {
  BestCheckpoint best(dir_ / "");
  best.Expect(10);
  best.Written(10, Write(10));
  for (const int64_t step : {20, 30, 40}) best.Written(step, Write(step));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "checkpoint-10.runnel"));
  best.Evaluated(10, 0.5);
  EXPECT_EQ(Best(), "10");
  best.Expect(50);
  best.Written(50, Write(50));
  best.Evaluated(50, 0.4);
  EXPECT_EQ(Best(), "10");
  EXPECT_EQ(Files(), 2 + 2) << "one that was not better is gone";
}

TEST_F(BestCheckpointTest, OutlivesTheRunsProcess) {
  {
    BestCheckpoint best(dir_ / "");
    best.Written(10, Write(10));
    best.Evaluated(10, 0.9);
    best.Expect(15);
    best.Written(15, Write(15));
  }
  ASSERT_TRUE(std::filesystem::exists(dir_ / "evaluated-15.runnel"));
  BestCheckpoint next(dir_ / "");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "evaluated-15.runnel"));
  next.Written(20, Write(20));
  next.Evaluated(20, 0.8);
  EXPECT_EQ(Best(), "10");
  next.Evaluated(30, 0.95);
  next.Written(30, Write(30));
  EXPECT_EQ(Best(), "30");
}

TEST_F(BestCheckpointTest, WithoutFilesThereIsNone) {
  BestCheckpoint none;
  none.Written(10, Write(10));
  none.Evaluated(10, 1);
  EXPECT_EQ(Best(), "none");
  BestCheckpoint best(dir_ / "");
  best.Evaluated(10, 1);
  best.Written(20, "");
  EXPECT_EQ(Best(), "none");
}

}  // namespace
}  // namespace runnel::best_checkpoint_test
