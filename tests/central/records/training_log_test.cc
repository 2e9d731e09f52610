// A run's log has one row for each step that it reached, however often it went back.

#include "central/records/training_log.h"

#include <cstring>
#include <fstream>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/unknown_field_set.h"
#include "gtest/gtest.h"
#include "proto/process/atomic_file.h"
#include "tests/support/scratch.h"

namespace runnel::training_log_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LogRow Barrier(int64_t step, double seconds) {
  LogRow row{.step = step, .epoch = 1, .seconds = seconds};
  row.loss = 0.5;
  row.learning_rate = 0.01;
  return row;
}
LogRow Evaluation(int64_t step, double seconds) {
  LogRow row{.step = step, .epoch = 1, .seconds = seconds};
  row.test_accuracy = 0.75;
  row.test_loss = 0.125;
  return row;
}

class TrainingLogTest : public ::testing::Test {
 protected:
  std::string Text(const std::string& path) { return ReadWholeFile(path, 1 << 20).value(); }
  ScratchDir dir_;
};

std::string EventFile(const std::string& folder) { return TrainingLog::Files("", folder).front(); }

constexpr char kHeader[] =
    "step,epoch,seconds,loss,learning_rate,samples_per_s,test_accuracy,test_loss\n";

TEST_F(TrainingLogTest, BothFormsHaveTheSameCells) {
  for (const char* name : {"a.csv", "a.jsonl"}) {
    auto log = TrainingLog::Create({dir_ / name});
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE(log->Append(Barrier(10, 1.5)).ok());
    ASSERT_TRUE(log->Append(Evaluation(10, 1.75)).ok());
    EXPECT_EQ(log->seconds(), 1.75);
  }
  EXPECT_EQ(Text(dir_ / "a.csv"),
            absl::StrCat(kHeader, "10,1,1.5,0.5,0.01,,,\n10,1,1.75,,,,0.75,0.125\n"));
  EXPECT_EQ(
      Text(dir_ / "a.jsonl"),
      "{\"step\": 10, \"epoch\": 1, \"seconds\": 1.5, \"loss\": 0.5, \"learning_rate\": 0.01}\n"
      "{\"step\": 10, \"epoch\": 1, \"seconds\": 1.75, \"test_accuracy\": 0.75, \"test_loss\": "
      "0.125}\n");
}

TEST_F(TrainingLogTest, WhatIsTrainedAgainIsLoggedOnce) {
  for (const std::string& path : {dir_ / "a.csv", dir_ / "a.jsonl", EventFile(dir_ / "tb")}) {
    auto log = TrainingLog::Create({path});
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE(log->Append(Barrier(10, 1)).ok());
    const std::string before = Text(path);
    ASSERT_TRUE(log->Append(Barrier(20, 2)).ok());
    ASSERT_TRUE(log->Append(Evaluation(20, 2)).ok());
    ASSERT_TRUE(log->GoBackTo(10).ok());
    EXPECT_EQ(Text(path), before);
    EXPECT_EQ(log->seconds(), 1);
    // A central that was killed in the middle of a line; the next one goes on.
    std::ofstream(path, std::ios::app) << "20,1,";
    auto next = TrainingLog::Continue({path}, 10);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(Text(path), before);
    EXPECT_EQ(next->seconds(), 1);
  }
}

// One that knows nothing of ours: numbers and types of fields on the wire, checksums apart.
struct Scalar {
  std::string tag;
  float value = 0;
};
struct ReadEvent {
  int64_t step = 0;
  std::string version;
  std::vector<Scalar> scalars;
};
std::vector<ReadEvent> ReadEvents(absl::string_view text) {
  std::vector<ReadEvent> events;
  while (!text.empty()) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, text.data(), 8);
    google::protobuf::UnknownFieldSet fields;
    EXPECT_TRUE(fields.ParseFromArray(text.data() + 12, static_cast<int>(bytes)));
    ReadEvent event;
    for (int i = 0; i < fields.field_count(); ++i) {
      const google::protobuf::UnknownField& field = fields.field(i);
      if (field.number() == 2) event.step = static_cast<int64_t>(field.varint());
      if (field.number() == 3) event.version = field.length_delimited();
      if (field.number() != 5) continue;
      google::protobuf::UnknownFieldSet values;
      EXPECT_TRUE(values.ParseFromString(field.length_delimited()));
      for (int v = 0; v < values.field_count(); ++v) {
        google::protobuf::UnknownFieldSet cell;
        EXPECT_EQ(values.field(v).number(), 1);
        EXPECT_TRUE(cell.ParseFromString(values.field(v).length_delimited()));
        const uint32_t bits = cell.field(1).fixed32();
        Scalar& scalar = event.scalars.emplace_back();
        scalar.tag = cell.field(0).length_delimited();
        std::memcpy(&scalar.value, &bits, 4);
      }
    }
    events.push_back(event);
    text.remove_prefix(12 + bytes + 4);
  }
  return events;
}

TEST_F(TrainingLogTest, TensorBoardsFilesAreWhatItsReadersExpect) {
  const std::string path = EventFile(dir_ / "runs/tb");
  auto log = TrainingLog::Create({path});
  ASSERT_TRUE(log.ok()) << log.status();
  // As every event file of TensorFlow begins: 24 bytes, and the checksum of that number.
  EXPECT_EQ(Text(path).substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  ASSERT_TRUE(log->Append(Barrier(10, 1.5)).ok());
  ASSERT_TRUE(log->Append(Evaluation(10, 1.75)).ok());
  const std::vector<ReadEvent> events = ReadEvents(Text(path));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].step, 10);
  std::map<std::string, float> values;
  for (const Scalar& scalar : events[1].scalars) values[scalar.tag] = scalar.value;
  EXPECT_EQ(values, (std::map<std::string, float>{
                        {"epoch", 1}, {"seconds", 1.5}, {"loss", 0.5}, {"learning_rate", 0.01f}}));
  EXPECT_EQ(events[2].scalars.back().tag, "test_loss");
}

TEST_F(TrainingLogTest, ADamagedEventFileIsNamedAndLeft) {
  const std::string path = EventFile(dir_ / "tb");
  auto log = TrainingLog::Create({path});
  ASSERT_TRUE(log.ok() && log->Append(Barrier(10, 1.5)).ok());
  const std::string whole = Text(path);
  for (size_t at = 0; at < whole.size(); at += 3) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(path, std::ios::binary) << damaged;
    const absl::Status status = TrainingLog::Continue({path}, 10).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << at << ": " << status;
    EXPECT_EQ(Text(path), damaged);
  }
  std::ofstream(path, std::ios::binary) << whole;
  const absl::Status taken = TrainingLog::Create({path}).status();
  EXPECT_EQ(taken.message(),
            absl::StrCat("--tensorboard ", dir_ / "tb", ": has rows already; name another folder"));
}

TEST_F(TrainingLogTest, SeveralFilesHaveTheSameRows) {
  auto log = TrainingLog::Create(TrainingLog::Files(dir_ / "a.csv", dir_ / "tb"));
  ASSERT_TRUE(log.ok() && log->Append(Barrier(10, 1.5)).ok() && log->Append(Barrier(20, 2)).ok());
  ASSERT_TRUE(log->GoBackTo(10).ok());
  EXPECT_EQ(Text(dir_ / "a.csv"), absl::StrCat(kHeader, "10,1,1.5,0.5,0.01,,,\n"));
  EXPECT_EQ(ReadEvents(Text(EventFile(dir_ / "tb"))).size(), 2u);
}

TEST_F(TrainingLogTest, ContinuesWhereNothingIsYet) {
  ASSERT_TRUE(TrainingLog::Continue({dir_ / "new.csv"}, 30).ok());
  EXPECT_EQ(Text(dir_ / "new.csv"), kHeader);
}

TEST_F(TrainingLogTest, SaysWhatItCannotTake) {
  const absl::Status name = TrainingLog::CheckName(dir_ / "a.txt");
  EXPECT_TRUE(absl::IsInvalidArgument(name)) << name;
  EXPECT_THAT(std::string(name.message()), HasSubstr("must end in .csv or .jsonl"));
  std::ofstream(dir_ / "file") << "x";
  EXPECT_FALSE(TrainingLog::Create({dir_ / "file/a.csv"}).ok()) << "no folder";
  std::ofstream(dir_ / "list.csv") << "name,weight\nanna,3\n";
  const absl::Status foreign = TrainingLog::Continue({dir_ / "list.csv"}, 10).status();
  EXPECT_TRUE(absl::IsDataLoss(foreign)) << foreign;
  EXPECT_THAT(std::string(foreign.message()), AllOf(HasSubstr("list.csv"), HasSubstr("line 1")));
  const absl::Status taken = TrainingLog::Create({dir_ / "list.csv"}).status();
  EXPECT_TRUE(absl::IsAlreadyExists(taken)) << taken;
  EXPECT_THAT(std::string(taken.message()), HasSubstr("has rows already"));
  EXPECT_THAT(Text(dir_ / "list.csv"), HasSubstr("anna")) << "it is left as it was";
}

}  // namespace
}  // namespace runnel::training_log_test
