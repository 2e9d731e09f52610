#include "central/run/checkpoints/checkpoint_writer.h"

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::checkpoint_writer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Checkpoint AtStep(int64_t step, bool resumable = true) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.resumable = resumable;
  return checkpoint;
}

// A disk on which the first file takes until Release, and which refuses one step.
class Disk {
 public:
  absl::StatusOr<std::string> Write(const Checkpoint& checkpoint) {
    if (order_.empty()) {
      begun_.set_value();
      released_.get_future().wait();
    }
    order_.push_back(checkpoint.step);
    if (checkpoint.step == refused_) return absl::ResourceExhaustedError("no space left");
    return absl::StrCat("file ", checkpoint.step);
  }
  void Refuse(int64_t step) { refused_ = step; }
  void WaitUntilBegun() { begun_.get_future().wait(); }
  void Release() { released_.set_value(); }
  const std::vector<int64_t>& order() const { return order_; }

 private:
  std::promise<void> begun_;
  std::promise<void> released_;
  int64_t refused_ = -1;
  std::vector<int64_t> order_;
};

class CheckpointWriterTest : public ::testing::Test {
 protected:
  std::unique_ptr<CheckpointWriter> MakeWriter() {
    return std::make_unique<CheckpointWriter>(
        [this](const Checkpoint& checkpoint) { return disk_.Write(checkpoint); },
        [this](CheckpointEnd end) {
          const std::lock_guard<std::mutex> lock(mutex_);
          ends_.push_back(std::move(end));
        });
  }
  // "STEP PATH", "STEP left out" or "STEP ERROR", in the order in which they were told.
  std::vector<std::string> Ends() const {
    std::vector<std::string> texts;
    for (const CheckpointEnd& end : ends_) {
      const bool left_out = end.status.ok() && end.path.empty();
      const std::string error(end.status.message());
      texts.push_back(absl::StrCat(end.step, " ", left_out ? "left out" : end.path + error));
    }
    return texts;
  }

  Disk disk_;
  std::mutex mutex_;
  std::vector<CheckpointEnd> ends_;
};

TEST_F(CheckpointWriterTest, AddReturnsWhileADiskIsBusyAndTheEndWaitsForIt) {
  auto writer = MakeWriter();
  writer->Add(AtStep(10));
  disk_.WaitUntilBegun();
  writer->Add(AtStep(20));
  EXPECT_THAT(disk_.order(), IsEmpty());
  disk_.Release();
  writer.reset();
  EXPECT_THAT(disk_.order(), ElementsAre(10, 20));
  EXPECT_THAT(Ends(), ElementsAre("10 file 10", "20 file 20"));
}

TEST_F(CheckpointWriterTest, OfThoseThatWaitTheNewestIsWritten) {
  auto writer = MakeWriter();
  writer->Add(AtStep(10));
  disk_.WaitUntilBegun();
  for (const int64_t step : {20, 30, 40}) writer->Add(AtStep(step));
  EXPECT_THAT(Ends(), ElementsAre("20 left out", "30 left out"));
  disk_.Release();
  writer.reset();
  EXPECT_THAT(disk_.order(), ElementsAre(10, 40));
  EXPECT_THAT(Ends(), ElementsAre("20 left out", "30 left out", "10 file 10", "40 file 40"));
}

// Weights between barriers cannot be resumed: they take the place of none that can.
TEST_F(CheckpointWriterTest, TheRunsLastWeightsReplaceNoResumableOne) {
  auto writer = MakeWriter();
  writer->Add(AtStep(10));
  disk_.WaitUntilBegun();
  writer->Add(AtStep(20));
  writer->Add(AtStep(25, /*resumable=*/false));
  disk_.Release();
  writer.reset();
  EXPECT_THAT(disk_.order(), ElementsAre(10, 20, 25));
}

TEST_F(CheckpointWriterTest, AnErrorIsToldAndTheNextIsTried) {
  disk_.Refuse(10);
  auto writer = MakeWriter();
  writer->Add(AtStep(10));
  disk_.WaitUntilBegun();
  writer->Add(AtStep(20));
  disk_.Release();
  writer.reset();
  EXPECT_THAT(Ends(), ElementsAre("10 no space left", "20 file 20"));
  EXPECT_EQ(ends_[0].status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace runnel::checkpoint_writer_test
