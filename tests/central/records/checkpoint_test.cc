#include "central/records/checkpoint.h"

#include <functional>

#include "central/records/weights_digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/checkpoint.pb.h"
#include "proto/crypto/sha256.h"
#include "proto/transport/control/model_convert.h"
#include "tests/base/codecs.h"
#include "tests/central/sample_model.h"
#include "tests/support/scratch.h"

namespace runnel::checkpoint_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Checkpoint Sample(int64_t step, bool resumable = true) {
  Checkpoint c;
  c.step = step;
  c.resumable = resumable;
  c.model = testing::SampleModel();
  c.settings = WithDefaults(RunSettings(), testing::SampleDefaults(), "digits", 1);
  c.plan.generation = Generation(3);
  c.plan.schedule = "async_1f1b";
  c.plan.stages = {{{Seat{DeviceId(0)}}, 0, 0, 2}, {{Seat{DeviceId(1)}}, 1, 2, 1}};
  c.plan.links = {{Codecs("mbq:4"), {}}};
  c.training.dataset_samples = 1000;
  c.training.eval_batch_size = 64;
  c.training.milestones = {1, 2};
  c.changes = {ChangeOfGradientBits(80, {1, 0})};
  c.rules = {{"plateau", R"({"bits":"1/0","without_fall":2,"best_loss":0.1})"}};
  c.device_names = {"local", "pi"};
  c.state = *InitialState(c.model, 5);
  c.state.encoders = {{0, Direction::kForward, "mbq:4", std::string("\0state", 6)}};
  c.journal = "/var/j";
  c.data_text = "runnel-data 1\nkind \xff\n";
  return c;
}

// A file with this payload in a right envelope.
std::string Envelope(const std::string& payload, uint32_t version = kCheckpointVersion) {
  std::string file = "RNLCKPT\n";
  for (int i = 0; i < 4; ++i) file.push_back(static_cast<char>(version >> (8 * i)));
  for (int i = 0; i < 8; ++i) {
    file.push_back(static_cast<char>(uint64_t{payload.size()} >> (8 * i)));
  }
  return file + Sha256(payload) + payload;
}

std::string PayloadOf(const std::string& path) { return Slurp(path).substr(52); }

absl::Status ReadStatus(const ScratchDir& dir, const std::string& content) {
  Spill(dir / "f.runnel", content);
  const absl::Status status = ReadCheckpoint(dir / "f.runnel").status();
  if (!status.ok()) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "f.runnel"));
    EXPECT_EQ(std::string(status.message()).find('\n'), std::string::npos);
  }
  return status;
}

// Before changes named their dial they had the bits as two numbers.
TEST(Checkpoint, ChangesOfOlderFilesAreOfGradientBits) {
  ScratchDir dir;
  proto::Checkpoint message;
  ASSERT_TRUE(message.ParseFromString(PayloadOf(*WriteCheckpoint(Sample(100), dir / "d"))));
  proto::TrainingChange& change = *message.mutable_changes(0);
  change.clear_dial();
  change.clear_value();
  change.set_gradient_bits_conv(1);
  message.clear_rules();
  Spill(dir / "f.runnel", Envelope(message.SerializeAsString()));
  const auto back = ReadCheckpoint(dir / "f.runnel");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->changes, Sample(100).changes);
  EXPECT_TRUE(back->rules.empty());
  change.set_dial("volume");
  EXPECT_THAT(std::string(ReadStatus(dir, Envelope(message.SerializeAsString())).message()),
              HasSubstr("dial 'volume' is not known; dials: gradient_bits"));
}

TEST(Checkpoint, RoundTripAndNames) {
  ScratchDir dir;
  const auto path = WriteCheckpoint(Sample(100), dir / "new/deep");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, dir / "new/deep/checkpoint-000000000100.runnel");
  const auto back = ReadCheckpoint(*path);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == Sample(100));
  const auto last = WriteCheckpoint(Sample(150, false), dir / "new/deep");
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(*last, dir / "new/deep/final.runnel");
  EXPECT_TRUE(*ReadCheckpoint(*last) == Sample(150, false));
}

TEST(Checkpoint, TheNewestTwoStay) {
  ScratchDir dir;
  Spill(dir / "notes.txt", "mine");
  Spill(dir / "checkpoint-x.runnel", "mine too");
  for (int64_t step : {100, 200, 300}) {
    ASSERT_TRUE(WriteCheckpoint(Sample(step), dir.path()).ok());
  }
  ASSERT_TRUE(WriteCheckpoint(Sample(310, false), dir.path()).ok());
  EXPECT_THAT(dir.List(),
              ElementsAre("checkpoint-000000000200.runnel", "checkpoint-000000000300.runnel",
                          "checkpoint-x.runnel", "final.runnel", "notes.txt"));
  EXPECT_EQ(*LatestCheckpoint(dir.path()), dir / "checkpoint-000000000300.runnel");
}

TEST(Checkpoint, ADamagedOneDoesNotHideTheOneBefore) {
  ScratchDir dir;
  ASSERT_TRUE(WriteCheckpoint(Sample(100), dir.path()).ok());
  const std::string newest = *WriteCheckpoint(Sample(200), dir.path());
  EXPECT_EQ(ReadLatestCheckpoint(dir.path())->path, newest);
  EXPECT_THAT(ReadLatestCheckpoint(dir.path())->damaged, ::testing::IsEmpty());
  const std::string whole = Slurp(newest);
  Spill(newest, whole.substr(0, whole.size() - 1));
  const auto before = ReadLatestCheckpoint(dir.path());
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(before->checkpoint.step, 100);
  EXPECT_EQ(before->path, dir / "checkpoint-000000000100.runnel");
  EXPECT_THAT(before->damaged, ElementsAre(HasSubstr(newest + " is truncated")));
  // All are: the newest one's error.
  Spill(before->path, "RNLCKPT\n");
  EXPECT_THAT(std::string(ReadLatestCheckpoint(dir.path()).status().message()), HasSubstr(newest));
  // What a later release wrote is no damage: going on from an older one would hide it.
  Spill(dir / "checkpoint-000000000300.runnel",
        Envelope(PayloadOf(*WriteCheckpoint(Sample(200), dir.path())), kCheckpointVersion + 1));
  EXPECT_EQ(ReadLatestCheckpoint(dir.path()).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReadLatestCheckpoint(dir / "no").status().code(), absl::StatusCode::kNotFound);
}

// Releases that took such a path wrote it as it was.
TEST(Checkpoint, AJournalPathThatIsNotUtf8IsRead) {
  ScratchDir dir;
  Checkpoint checkpoint = Sample(100);
  checkpoint.journal = "/data/\xe9t\xe9";
  const auto back = ReadCheckpoint(*WriteCheckpoint(checkpoint, dir.path()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->journal, checkpoint.journal);
}

TEST(Checkpoint, WhatWasJustWrittenStaysBesideLaterOnes) {
  ScratchDir dir;
  for (int64_t step : {800, 900, 100, 200, 300}) {
    ASSERT_TRUE(WriteCheckpoint(Sample(step), dir.path()).ok());
  }
  EXPECT_THAT(dir.List(),
              ElementsAre("checkpoint-000000000200.runnel", "checkpoint-000000000300.runnel",
                          "checkpoint-000000000800.runnel", "checkpoint-000000000900.runnel"));
}

TEST(Checkpoint, AFullDiskLeavesTheOlderOnes) {
  ScratchDir dir;
  ASSERT_TRUE(WriteCheckpoint(Sample(100), dir.path()).ok());
  ASSERT_TRUE(WriteCheckpoint(Sample(200), dir.path()).ok());
  absl::Status status;
  {
    FileSizeLimit limit(4096);
    status = WriteCheckpoint(Sample(300), dir.path()).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("checkpoint-000000000300.runnel"));
  EXPECT_THAT(dir.List(),
              ElementsAre("checkpoint-000000000100.runnel", "checkpoint-000000000200.runnel"));
  EXPECT_TRUE(ReadCheckpoint(*LatestCheckpoint(dir.path())).ok());
}

TEST(Checkpoint, ADirectoryThatCannotBe) {
  ScratchDir dir;
  Spill(dir / "file", "");
  const absl::Status status = WriteCheckpoint(Sample(1), dir / "file/c").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("file/c"));
  EXPECT_EQ(WriteCheckpoint(Sample(1), dir / "file").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Checkpoint, NothingToResume) {
  ScratchDir dir;
  const absl::Status missing = LatestCheckpoint(dir / "no").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("--checkpoint-dir"));
  EXPECT_THAT(std::string(missing.message()), HasSubstr(dir / "no"));
  const absl::Status empty = LatestCheckpoint(dir.path()).status();
  EXPECT_EQ(empty.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(empty.message()), HasSubstr("no check-point to resume from"));
  ASSERT_TRUE(WriteCheckpoint(Sample(7, false), dir.path()).ok());
  const absl::Status only_final = LatestCheckpoint(dir.path()).status();
  EXPECT_EQ(only_final.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(only_final.message()), HasSubstr("final.runnel"));
  EXPECT_EQ(ReadCheckpoint(dir / "none").status().code(), absl::StatusCode::kNotFound);
}

TEST(Checkpoint, EveryCutIsDetected) {
  ScratchDir dir;
  const std::string whole = Slurp(*WriteCheckpoint(Sample(100), dir.path()));
  EXPECT_EQ(ReadStatus(dir, "").code(), absl::StatusCode::kInvalidArgument);
  for (size_t cut = 1; cut < whole.size(); cut += cut < 60 ? 1 : 997) {
    const absl::Status status = ReadStatus(dir, whole.substr(0, cut));
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << cut << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("truncated"));
  }
  EXPECT_EQ(ReadStatus(dir, whole + "x").code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(ReadStatus(dir, whole).ok());
}

TEST(Checkpoint, EveryFlippedByteIsDetected) {
  ScratchDir dir;
  const std::string whole = Slurp(*WriteCheckpoint(Sample(100), dir.path()));
  for (size_t at = 0; at < whole.size(); at += at < 60 ? 1 : 1009) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    const absl::Status status = ReadStatus(dir, damaged);
    const absl::StatusCode expected = at < 8    ? absl::StatusCode::kInvalidArgument
                                      : at < 12 ? absl::StatusCode::kUnimplemented
                                                : absl::StatusCode::kDataLoss;
    ASSERT_EQ(status.code(), expected) << at << ": " << status;
  }
}

TEST(Checkpoint, ANewerVersionSaysSo) {
  ScratchDir dir;
  const absl::Status status = ReadStatus(dir, Envelope("future", kCheckpointVersion + 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("format version 2, this program reads 1"));
}

TEST(Checkpoint, AnEnormousLengthAllocatesNothing) {
  ScratchDir dir;
  std::string file = Envelope("payload");
  for (int i = 12; i < 20; ++i) file[i] = '\x7f';
  EXPECT_EQ(ReadStatus(dir, file).code(), absl::StatusCode::kDataLoss);
}

TEST(Checkpoint, ContentsThatDoNotFitThemselves) {
  ScratchDir dir;
  proto::Checkpoint right;
  ASSERT_TRUE(right.ParseFromString(PayloadOf(*WriteCheckpoint(Sample(100), dir.path()))));
  EXPECT_EQ(ReadStatus(dir, Envelope("\xff\xff")).code(), absl::StatusCode::kDataLoss);
  const struct {
    std::function<void(proto::Checkpoint&)> change;
    const char* message;
  } kCases[] = {
      {[](auto& m) { m.set_step(-1); }, "step is below 0"},
      {[](auto& m) { m.set_settings_json("{\"x\":1}"); }, "'x' is not known"},
      {[](auto& m) { m.clear_model(); }, ""},
      {[](auto& m) { m.mutable_plan()->mutable_stages(1)->set_last_layer(1); }, ""},
      {[](auto& m) { m.mutable_plan()->mutable_stages(1)->set_device(2); }, "device 2"},
      {[](auto& m) { m.mutable_state()->mutable_layers()->RemoveLast(); }, "has 2 layers, needs 3"},
      {[](auto& m) { m.mutable_state()->mutable_layers(0)->mutable_tensors()->RemoveLast(); },
       "state of layer 0"},
      {[](auto& m) {
         auto* tensor = m.mutable_state()->mutable_layers(0)->mutable_tensors(0);
         tensor->set_data(tensor->data().substr(4));
       },
       ""},
      {[](auto& m) { m.mutable_training()->mutable_settings()->DeleteSubrange(0, 1); },
       "training.seed: is missing"},
      {[](auto& m) { m.clear_training(); }, "training.dataset_samples: must be at least 1"},
  };
  for (const auto& c : kCases) {
    proto::Checkpoint wrong = right;
    c.change(wrong);
    const absl::Status status = ReadStatus(dir, Envelope(wrong.SerializeAsString()));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr("does not fit itself: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

// Files of until 2026-11-22 have one field a setting.
TEST(Checkpoint, OldTrainingSettingsAreRead) {
  ScratchDir dir;
  const Checkpoint written = Sample(100);
  proto::Checkpoint message;
  ASSERT_TRUE(message.ParseFromString(PayloadOf(*WriteCheckpoint(written, dir.path()))));
  message.clear_training();
  proto::OldTrainingSettings& old = *message.mutable_old_training();
  old.set_seed(1);
  old.set_dataset_samples(1000);
  old.set_batch_size(64);
  old.set_micro_batches(1);
  old.set_min_samples(1);
  old.set_eval_batch_size(64);
  old.set_learning_rate(0.01);
  old.set_momentum(0.9);
  old.add_milestones(1);
  old.add_milestones(2);
  old.set_milestone_factor(0.1);
  Spill(dir / "old.runnel", Envelope(message.SerializeAsString()));
  const auto read = ReadCheckpoint(dir / "old.runnel");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == written);
  old.set_momentum(2);
  EXPECT_THAT(std::string(ReadStatus(dir, Envelope(message.SerializeAsString())).message()),
              HasSubstr("training.momentum: must be below 1"));
}

TEST(ModelSha256, TellsModelsApart) {
  ModelSpec model = testing::SampleModel();
  const std::string digits = ModelSha256(model);
  EXPECT_EQ(digits.size(), 64u);
  EXPECT_EQ(ModelSha256(testing::SampleModel()), digits);
  EXPECT_TRUE(IsModel(model, testing::SampleDefaults(), digits));
  model.layers[0].ops[0].bias = false;
  EXPECT_NE(ModelSha256(model), digits);
  EXPECT_FALSE(IsModel(model, testing::SampleDefaults(), digits));
}

// With the training defaults in it, as journals have it until 2026-11-22.
TEST(ModelSha256, OldDigestsCountWhileTheDefaultsAreTheSame) {
  constexpr char kOldDigest[] = "9467cdcb1f08ff4d302267fb4ecd1ddf9792f2fdf6df5ef9bff917040a6ea96f";
  const ModelSpec model = *MakeModel("lenet");
  TrainingDefaults defaults = (*FindModel("lenet"))->defaults;
  EXPECT_TRUE(IsModel(model, defaults, kOldDigest));
  defaults.learning_rate *= 2;
  EXPECT_FALSE(IsModel(model, defaults, kOldDigest));
  EXPECT_TRUE(IsModel(model, defaults, ModelSha256(model)));
}

}  // namespace
}  // namespace runnel::checkpoint_test
