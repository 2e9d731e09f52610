// A run's log has one row for each step that it reached, however often it went back.

#include "central/records/training_log.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/process/atomic_file.h"
#include "tests/support/scratch.h"

namespace runnel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LogRow Barrier(int64_t step, double seconds) {
  LogRow row{.step = step, .epoch = 0, .seconds = seconds};
  row.loss = 0.5;
  row.learning_rate = 0.01;
  return row;
}
LogRow Evaluation(int64_t step, double seconds) {
  LogRow row{.step = step, .epoch = 0, .seconds = seconds};
  row.test_accuracy = 0.75;
  row.test_loss = 0.125;
  return row;
}

class TrainingLogTest : public ::testing::Test {
 protected:
  std::string Text(const std::string& path) { return ReadWholeFile(path, 1 << 20).value(); }
  ScratchDir dir_;
};

constexpr char kHeader[] =
    "step,epoch,seconds,loss,learning_rate,samples_per_s,test_accuracy,test_loss\n";

TEST_F(TrainingLogTest, BothFormsHaveTheSameCells) {
  for (const char* name : {"a.csv", "a.jsonl"}) {
    auto log = TrainingLog::Create(dir_ / name);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE(log->Append(Barrier(10, 1.5)).ok());
    ASSERT_TRUE(log->Append(Evaluation(10, 1.75)).ok());
    EXPECT_EQ(log->seconds(), 1.75);
  }
  EXPECT_EQ(Text(dir_ / "a.csv"),
            absl::StrCat(kHeader, "10,0,1.5,0.5,0.01,,,\n10,0,1.75,,,,0.75,0.125\n"));
  EXPECT_EQ(
      Text(dir_ / "a.jsonl"),
      "{\"step\": 10, \"epoch\": 0, \"seconds\": 1.5, \"loss\": 0.5, \"learning_rate\": 0.01}\n"
      "{\"step\": 10, \"epoch\": 0, \"seconds\": 1.75, \"test_accuracy\": 0.75, \"test_loss\": "
      "0.125}\n");
}

TEST_F(TrainingLogTest, WhatIsTrainedAgainIsLoggedOnce) {
  for (const char* name : {"a.csv", "a.jsonl"}) {
    const std::string path = dir_ / name;
    auto log = TrainingLog::Create(path);
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE(log->Append(Barrier(10, 1)).ok());
    const std::string before = Text(path);
    ASSERT_TRUE(log->Append(Barrier(20, 2)).ok());
    ASSERT_TRUE(log->Append(Evaluation(20, 2)).ok());
    ASSERT_TRUE(log->GoBackTo(10).ok());
    EXPECT_EQ(Text(path), before);
    EXPECT_EQ(log->seconds(), 1);
    // A central that was killed in the middle of a line; the next one goes on.
    std::ofstream(path, std::ios::app) << "20,0,";
    auto next = TrainingLog::Continue(path, 10);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(Text(path), before);
    EXPECT_EQ(next->seconds(), 1);
  }
}

TEST_F(TrainingLogTest, ContinuesWhereNothingIsYet) {
  ASSERT_TRUE(TrainingLog::Continue(dir_ / "new.csv", 30).ok());
  EXPECT_EQ(Text(dir_ / "new.csv"), kHeader);
}

TEST_F(TrainingLogTest, SaysWhatItCannotTake) {
  const absl::Status name = TrainingLog::Create(dir_ / "a.txt").status();
  EXPECT_TRUE(absl::IsInvalidArgument(name)) << name;
  EXPECT_THAT(std::string(name.message()), HasSubstr("must end in .csv or .jsonl"));
  EXPECT_FALSE(TrainingLog::Create(dir_ / "no/folder.csv").ok());
  std::ofstream(dir_ / "list.csv") << "name,weight\nanna,3\n";
  const absl::Status foreign = TrainingLog::Continue(dir_ / "list.csv", 10).status();
  EXPECT_TRUE(absl::IsDataLoss(foreign)) << foreign;
  EXPECT_THAT(std::string(foreign.message()), AllOf(HasSubstr("list.csv"), HasSubstr("line 2")));
  const absl::Status taken = TrainingLog::Create(dir_ / "list.csv").status();
  EXPECT_TRUE(absl::IsAlreadyExists(taken)) << taken;
  EXPECT_THAT(std::string(taken.message()), HasSubstr("has rows already"));
  EXPECT_THAT(Text(dir_ / "list.csv"), HasSubstr("anna")) << "it is left as it was";
}

}  // namespace
}  // namespace runnel
