#include "central/records/journal_thread.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scratch.h"

namespace runnel::journal_thread_test {
namespace {

RunStarted Start() {
  RunStarted record;
  record.model = "lenet";
  record.model_sha256 = std::string(64, 'a');
  record.settings.training.batch_size = 32;
  record.training.dataset_samples = 1000;
  record.training.eval_batch_size = 64;
  record.training.learning_rate = 0.1;
  return record;
}

TEST(JournalThread, WritesInOrderAndFlushWaits) {
  ScratchDir dir;
  auto writer = JournalWriter::Create(dir / "j");
  ASSERT_TRUE(writer.ok()) << writer.status();
  constexpr int64_t kBarriers = 50;
  JournalThread thread(&*writer, {[](const absl::Status& status) { ADD_FAILURE() << status; }});
  thread.Append(Start());
  for (int64_t step = 1; step <= kBarriers; ++step) thread.Append(EvaluationRecorded{step, 0.5, 1});
  ASSERT_TRUE(thread.Flush().ok());
  const auto journal = ReadJournal(dir / "j");
  ASSERT_TRUE(journal.ok()) << journal.status();
  ASSERT_EQ(journal->records.size(), 1u + kBarriers);
  for (int64_t step = 1; step <= kBarriers; ++step)
    EXPECT_EQ(std::get<EvaluationRecorded>(journal->records[step]).step, step);
}

TEST(JournalThread, TheEndWritesWhatWaits) {
  ScratchDir dir;
  auto writer = JournalWriter::Create(dir / "j");
  ASSERT_TRUE(writer.ok()) << writer.status();
  {
    JournalThread thread(&*writer, {[](const absl::Status&) {}});
    thread.Append(Start());
    thread.Append(BarrierPassed{40});
  }
  EXPECT_EQ(ReadJournal(dir / "j")->records.size(), 2u);
}

TEST(JournalThread, TheFirstErrorIsToldOnceAndStays) {
  auto full = JournalWriter::Create("/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  std::atomic<int> errors{0};
  JournalThread thread(&*full, {[&](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    ++errors;
  }});
  thread.Append(Start());
  EXPECT_FALSE(thread.Flush().ok());
  thread.Append(BarrierPassed{40});
  EXPECT_FALSE(thread.Flush().ok());
  EXPECT_EQ(errors, 1);
}

struct Told {
  JournalThread::Tell tell() {
    return {[this](const absl::Status&) { ++failures; },
            [this](const std::string& line) {
              const std::lock_guard<std::mutex> lock(mutex);
              lines.push_back(line);
              changed.notify_all();
            }};
  }
  std::atomic<int> failures{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lines;
};

TEST(JournalThread, KeepsItsRecordsUntilThereIsRoom) {
  ScratchDir dir;
  auto writer = JournalWriter::Create(dir / "j");
  ASSERT_TRUE(writer.ok()) << writer.status();
  Told told;
  JournalThread thread(&*writer, told.tell(), {std::chrono::milliseconds(1), 1 << 30});
  auto full = std::make_optional<FileSizeLimit>(1);
  thread.Append(Start());
  thread.Append(BarrierPassed{40});
  {
    std::unique_lock<std::mutex> lock(told.mutex);
    told.changed.wait(lock, [&] { return !told.lines.empty(); });
    EXPECT_THAT(told.lines[0], ::testing::HasSubstr("the records are kept"));
  }
  full.reset();
  EXPECT_TRUE(thread.Flush().ok());
  EXPECT_EQ(ReadJournal(dir / "j")->records.size(), 2u);
  EXPECT_EQ(told.failures, 0);
  EXPECT_EQ(told.lines.size(), 2u) << "once that it waits, once that it does not";
}

TEST(JournalThread, GivesUpAfterItsTries) {
  ScratchDir dir;
  auto writer = JournalWriter::Create(dir / "j");
  ASSERT_TRUE(writer.ok()) << writer.status();
  Told told;
  JournalThread thread(&*writer, told.tell(), {std::chrono::milliseconds(0), 3});
  const FileSizeLimit full(1);
  thread.Append(Start());
  EXPECT_FALSE(thread.Flush().ok());
  EXPECT_FALSE(writer->is_broken());
}

}  // namespace
}  // namespace runnel::journal_thread_test
