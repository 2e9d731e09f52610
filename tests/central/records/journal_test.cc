#include "central/records/journal.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "tests/base/codecs.h"
#include "tests/support/scratch.h"

namespace runnel::journal_test {
namespace {

using ::testing::HasSubstr;

RunStarted Start() {
  RunStarted r;
  r.settings.training.batch_size = 32;
  r.settings.caps = {2, 1};
  r.model = "lenet";
  r.model_sha256 = std::string(64, 'a');
  r.training.seed = std::numeric_limits<uint64_t>::max();
  r.training.dataset_samples = 1000;
  r.training.eval_batch_size = 64;
  r.training.learning_rate = 1.0 / 3;
  r.training.milestones = {2, 5};
  r.training.look_ahead = 0.5;
  r.training.raised_look_ahead = 0.25;
  r.training.aggregate_every = 5;
  r.training.stale_rate_steps = 300;
  r.training.gradient_bits = {{0, {3, -2}}, {7, {2, 2}}};
  return r;
}

PlanDecided Decided(int32_t generation, int64_t from_step) {
  PlanDecided r;
  r.from_step = from_step;
  r.plan.generation = Generation(generation);
  r.plan.schedule = "async_1f1b";
  r.plan.drains_each_step = true;
  r.plan.stages = {{{Seat{DeviceId(1)}}, 0, 2, 2}, {{Seat{DeviceId(0)}}, 3, 4, 1}};
  r.plan.stages[0].recompute = true;
  r.plan.links = {{Codecs("mbq:4"), Codecs("stochastic:8")}};
  r.devices = {{"pi \"4\"\n", "cpu-avx2-1", DeviceTimes::ByLayer({0.1, 0.2, 1e-9})},
               {"phone", "ref-1", DeviceTimes::ByRange(2, {0.5, 1e-9, 0.25})}};
  r.devices[0].costs = {0.25, 0.5, 1e-9, 3e-5, 2e-10};
  r.devices[1].backend_options = "opencl.weights=fp16";
  return r;
}

// The names in the file are those of earlier releases.
TEST(JournalLine, DeviceTimesSayByLayerOrByRange) {
  const std::string line = JournalLine(Decided(0, 0));
  EXPECT_THAT(line, HasSubstr(R"("layer_seconds":[0.1,0.2,1e-09])"));
  EXPECT_THAT(line, HasSubstr(R"("range_seconds":[0.5,1e-09,0.25])"));
  std::string torn = line;
  torn.replace(torn.find("[0.5,1e-09,0.25]"), 16, "[0.5,0.25]");
  EXPECT_THAT(std::string(ParseJournalLine(torn).status().message()),
              HasSubstr("no model has 2 ranges of layers"));
}

std::vector<JournalRecord> OneOfEach() {
  return {Start(),
          LinksKnown{{{DeviceId(0), DeviceId(1), 9.5, 2, true}, {DeviceId(1), DeviceId(0)}},
                     {{{DeviceId(1), DeviceId(3)}, 9.5, true}}},
          Decided(0, 0),
          BarrierPassed{100},
          CheckpointWritten{100, "/c/checkpoint-000000000100.runnel"},
          EvaluationRecorded{100, 0.75, 1.25},
          NoiseMeasured{100, 0.02, 0.05, 320, 4, 1.5, 0.25, "4 bits forward"},
          NoiseMeasured{.step = 100,
                        .added = 0.02,
                        .codecs = "4 bits forward",
                        .ways = {{0, 3, true, false, "eden:4", 0.05, 0.015, true},
                                 {2, 7, true, true, "mbq:2 and identity", 0.02, 0.005}},
                        .way = 0},
          WorkerLost{100, DeviceId(1), "phone", "connection reset"},
          Recovered{100, {"phone", "pi"}},
          Decided(1, 100),
          RunStopped{150, "interrupted"},
          RunResumed{100, "/c/checkpoint-000000000100.runnel"},
          RunResumed{100, "/c/checkpoint-000000000100.runnel", 12},
          Decided(0, 100),
          SubModelsMeasured{100, DeviceId(1), "phone", {{{0, 2}, 0.25}, {{4, 4}, 1e-9}}},
          BarrierPassed{200},
          TrainingChanged{ChangeOfGradientBits(200, {1, -3}), "the loss"},
          RunFinished{200, std::string(64, 'f')}};
}

void WriteAllOf(const std::string& path, const std::vector<JournalRecord>& records) {
  auto writer = JournalWriter::Create(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const JournalRecord& record : records) ASSERT_TRUE(writer->Append(record).ok());
}

TEST(Journal, RoundTrip) {
  ScratchDir dir;
  WriteAllOf(dir / "j", OneOfEach());
  const auto journal = ReadJournal(dir / "j");
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_TRUE(journal->records == OneOfEach());
  EXPECT_EQ(journal->torn_line, "");
}

TEST(Journal, OneLineARecordWithKindAndVersion) {
  for (const JournalRecord& record : OneOfEach()) {
    const std::string line = JournalLine(record);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_THAT(line, ::testing::StartsWith("{\"record\":\""));
    EXPECT_THAT(line, HasSubstr("\"version\":2"));
  }
  EXPECT_EQ(JournalLine(BarrierPassed{7}), R"({"record":"barrier","version":2,"step":7})");
}

// Written before there were recoveries.
TEST(Journal, OlderVersionsAreRead) {
  EXPECT_EQ(
      std::get<BarrierPassed>(*ParseJournalLine(R"({"record":"barrier","version":1,"step":7})"))
          .step,
      7);
}

// The dial is the key of its value, as it was when gradient bits were the only one.
TEST(Journal, AChangeOfTheTrainingNamesItsDial) {
  const std::string line =
      R"({"record":"training_change","version":2,"from_step":40,"gradient_bits":"2/1","why":"x"})";
  EXPECT_EQ(JournalLine(TrainingChanged{ChangeOfGradientBits(40, {2, 1}), "x"}), line);
  EXPECT_EQ(std::get<TrainingChanged>(*ParseJournalLine(line)).change,
            ChangeOfGradientBits(40, {2, 1}));
  const auto error = [&](const std::string& with) {
    std::string changed = line;
    changed.replace(changed.find(R"("gradient_bits":"2/1")"), 21, with);
    return std::string(ParseJournalLine(changed).status().message());
  };
  EXPECT_THAT(error(R"("volume":"11")"),
              HasSubstr("dial 'volume' is not known; dials: gradient_bits"));
  EXPECT_THAT(error(R"("gradient_bits":"99")"), HasSubstr("gradient bits: 99 bits"));
  EXPECT_THAT(error(R"("gradient_bits":2)"), HasSubstr("gradient_bits"));
  EXPECT_THAT(error(R"("from_step":40)"), HasSubstr("names no dial"));
}

// Steps go back at a recovery, plans do not: survivors know all generations that there were.
TEST(Journal, ARecoveryGoesBackToABarrierThatWas) {
  ScratchDir dir;
  const std::string start = JournalLine(Start()) + "\n";
  const auto read = [&](const std::vector<JournalRecord>& records) {
    std::string content = start;
    for (const JournalRecord& record : records) content += JournalLine(record) + "\n";
    Spill(dir / "j", content);
    return ReadJournal(dir / "j").status();
  };
  EXPECT_TRUE(read({Decided(1, 0), BarrierPassed{40}, Decided(2, 40),
                    TrainingChanged{ChangeOfGradientBits(80, {1, 1}), ""}, BarrierPassed{80},
                    Recovered{40, {"a"}}, Decided(3, 40),
                    TrainingChanged{ChangeOfGradientBits(80, {1, 1}), ""}, Recovered{0, {"b"}},
                    Decided(4, 0), BarrierPassed{40}})
                  .ok());
  EXPECT_THAT(std::string(read({Decided(1, 0), BarrierPassed{40}, Recovered{80, {}}}).message()),
              HasSubstr(":4: recovered at step 80, the run was at 40"));
  EXPECT_THAT(std::string(read({Decided(1, 0), Recovered{0, {}}, Decided(1, 0)}).message()),
              HasSubstr(":4: generation 1 follows 1"));
}

TEST(Journal, GradientBitsAreThereForIntegersOnly) {
  EXPECT_THAT(JournalLine(Start()), HasSubstr(R"("gradient_bits":"0:3/-2,7:2")"));
  EXPECT_THAT(JournalLine(RunStarted()), ::testing::Not(HasSubstr("gradient_bits")));
  std::string line = JournalLine(Start());
  line.replace(line.find("0:3/-2"), 6, "0:99");
  EXPECT_THAT(std::string(ParseJournalLine(line).status().message()), HasSubstr("99 bits"));
}

TEST(Journal, ADivergedLossIsNull) {
  const std::string line =
      JournalLine(EvaluationRecorded{1, 0.1, std::numeric_limits<double>::quiet_NaN()});
  EXPECT_THAT(line, HasSubstr("\"loss\":null"));
  EXPECT_TRUE(std::isnan(std::get<EvaluationRecorded>(*ParseJournalLine(line)).loss));
}

TEST(Journal, TornLastLineIsLeftOutAndTold) {
  ScratchDir dir;
  WriteAllOf(dir / "j", OneOfEach());
  const std::string whole = Slurp(dir / "j");
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t cut : {last + 1, last + 20, whole.size() - 1}) {
    Spill(dir / "j", whole.substr(0, cut));
    const auto journal = ReadJournal(dir / "j");
    ASSERT_TRUE(journal.ok()) << journal.status();
    EXPECT_EQ(journal->records.size(), OneOfEach().size() - 1);
    EXPECT_THAT(journal->torn_line,
                HasSubstr(absl::StrCat(dir / "j", ":", OneOfEach().size(), ": ")));
  }
  auto writer = JournalWriter::Continue(dir / "j");
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Append(OneOfEach().back()).ok());
  EXPECT_EQ(Slurp(dir / "j"), whole);
}

TEST(Journal, BadLinesAreNamed) {
  const std::string start = JournalLine(Start()) + "\n";
  const struct {
    std::string content;
    const char* message;
  } kCases[] = {
      {"", ":1: holds no record"},
      {"torn", ":1: holds no record"},
      {start + "{]\n", ":2: JSON: "},
      {start + "\n", ":2: JSON: "},
      {start + "[]\n", ":2: is no JSON object"},
      {start + "{}\n", ":2: 'version' is missing"},
      {start + R"({"version":3,"record":"barrier","step":1})"
               "\n",
       ":2: version 3 is not known, this reads 1 to 2"},
      {start + R"({"version":1})"
               "\n",
       ":2: 'record' is missing"},
      {start + R"({"version":1,"record":"tea"})"
               "\n",
       ":2: record 'tea' is not known"},
      {start + R"({"version":1,"record":"barrier"})"
               "\n",
       ":2: barrier: 'step' is missing"},
      {start + R"({"version":1,"record":"barrier","step":"1"})"
               "\n",
       ":2: barrier: 'step': needs"},
      {start + R"({"version":1,"record":"barrier","step":1,"x":0})"
               "\n",
       "'x' is not known"},
      {start + R"({"version":1,"record":"plan","from_step":0,"plan":3,"devices":[]})"
               "\n",
       ":2: plan: needs an object"},
      {R"({"version":1,"record":"barrier","step":1})"
       "\n",
       ":1: the first record must be"},
      {start + start, ":2: run_started must be the first record"},
      {start + JournalLine(BarrierPassed{5}) + "\n" + JournalLine(BarrierPassed{4}) + "\n",
       ":3: step 4 follows step 5"},
      {start + JournalLine(Decided(1, 0)) + "\n" + JournalLine(Decided(1, 3)) + "\n",
       ":3: generation 1 follows 1"},
  };
  ScratchDir dir;
  for (const auto& c : kCases) {
    Spill(dir / "j", c.content);
    const auto journal = ReadJournal(dir / "j");
    EXPECT_EQ(journal.status().code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(journal.status().message()), HasSubstr(c.message));
    EXPECT_THAT(std::string(journal.status().message()), HasSubstr(dir / "j"));
    EXPECT_FALSE(JournalWriter::Continue(dir / "j").ok());
  }
  EXPECT_EQ(ReadJournal(dir / "none").status().code(), absl::StatusCode::kNotFound);
}

TEST(Journal, BadPlansAreNamed) {
  std::vector<std::pair<PlanDecided, const char*>> cases(6, {Decided(0, 0), ""});
  cases[0].first.plan.stages[0].GiveTo(2);
  cases[0].second = "device 2 of the plan is not among the devices";
  cases[1].first.plan.links.clear();
  cases[1].second = "2 stages and 0 links do not fit";
  cases[2].first.plan.stages[1].cap = 0;
  cases[2].second = "cap 0, 0 deferred";
  cases[3].first.plan.stages[1].last_layer = 2;
  cases[3].second = "layers 3-2";
  cases[4].first.plan.stages[1].GiveTo(-1);
  cases[4].second = "device -1";
  cases[5].first.plan.stages[1].deferred_weight_gradients = -1;
  cases[5].second = "-1 deferred weight-gradients cannot be";
  for (const auto& [record, message] : cases) {
    const auto parsed = ParseJournalLine(JournalLine(record));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(message));
  }
}

// Any damage is an error or a torn end, never a crash.
TEST(Journal, SurvivesEveryCutAndManyFlips) {
  ScratchDir dir;
  std::string whole;
  for (const JournalRecord& record : OneOfEach()) whole += JournalLine(record) + "\n";
  for (size_t cut = 0; cut < whole.size(); cut += 7) {
    Spill(dir / "j", whole.substr(0, cut));
    const auto journal = ReadJournal(dir / "j");
    EXPECT_TRUE(!journal.ok() || journal->records.size() < OneOfEach().size()) << cut;
  }
  for (size_t at = 0; at < whole.size(); at += 5) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x81);
    Spill(dir / "j", damaged);
    (void)ReadJournal(dir / "j").ok();
  }
}

TEST(JournalWriter, OneRunAFile) {
  ScratchDir dir;
  WriteAllOf(dir / "j", {Start()});
  const absl::Status again = JournalWriter::Create(dir / "j").status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(again.message()), HasSubstr(dir / "j"));
  EXPECT_EQ(JournalWriter::Create(dir / "no/j").status().code(), absl::StatusCode::kNotFound);
}

TEST(JournalWriter, OneProcessAtATime) {
  ScratchDir dir;
  auto writer = JournalWriter::Create(dir / "j");
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Append(Start()).ok());
  const absl::Status second = JournalWriter::Continue(dir / "j").status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.message()), HasSubstr("is in use by"));
  EXPECT_THAT(std::string(JournalWriter::Create(dir / "j").status().message()),
              HasSubstr("is in use by"));
}

TEST(JournalWriter, AFullDiskLeavesWholeRecords) {
  ScratchDir dir;
  WriteAllOf(dir / "j", {Start(), Decided(0, 0)});
  const std::string before = Slurp(dir / "j");
  auto writer = JournalWriter::Continue(dir / "j");
  ASSERT_TRUE(writer.ok()) << writer.status();
  absl::Status status;
  {
    FileSizeLimit limit(before.size() + 10);  // some bytes of the record fit
    status = writer->Append(BarrierPassed{100});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "j"));
  EXPECT_EQ(Slurp(dir / "j"), before);
  ASSERT_TRUE(writer->Append(BarrierPassed{100}).ok());
  const auto journal = ReadJournal(dir / "j");
  ASSERT_TRUE(journal.ok()) << journal.status();
  EXPECT_EQ(journal->records.size(), 3u);
}

TEST(JournalWriter, DevicesWork) {
  auto null = JournalWriter::Create("/dev/null");
  ASSERT_TRUE(null.ok()) << null.status();
  EXPECT_TRUE(null->Append(BarrierPassed{1}).ok());
  auto full = JournalWriter::Create("/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->Append(Start()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full->Append(Start()).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace runnel::journal_test
