// Profiles measured on real workers, reports on them, and runs that plan by what is predicted.

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "predictor/profiles/profile_file.h"
#include "predictor/profiles/profile_folder.h"
#include "tests/process/central_runs.h"

namespace runnel::predictor_test {
namespace {

using ::testing::HasSubstr;

const Words kMeasure = {"profile", "--models", "lenet",    "--batch-size", "4",    "--burst-ms",
                        "0",       "--extra",  "4",        "--name",       "here", "--family",
                        "hosts",   "--host",   "this one", "--backend",    "cpu"};

// The words with this flag's value, or with the flag behind them.
Words Set(Words words, const std::string& flag, const std::string& value) {
  const auto found = std::find(words.begin(), words.end(), flag);
  if (found == words.end()) return With(words, {flag, value});
  *(found + 1) = value;
  return words;
}

// Training and planning are runnel-central's, everything else here runnel-lab's.
std::string ProgramOf(const Words& words) {
  return words.front() == "plan" || words.front() == "train" ? "runnel-central" : "runnel-lab";
}

std::string Output(const Words& words) {
  Process central(With({ProgramOf(words)}, words));
  EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
  return central.out();
}

void ExpectRefused(const Words& words, const std::string& text) {
  Process central(With({ProgramOf(words)}, words));
  EXPECT_EQ(central.Wait(60), 2) << testing::PrintToString(words) << "\n" << central.err();
  const std::string err = central.err();
  EXPECT_THAT(err, HasSubstr(text)) << testing::PrintToString(words);
  EXPECT_LE(std::count(err.begin(), err.end(), '\n'), 3) << err;  // CLI11 puts a hint behind
}

DeviceProfile Read(const std::string& path) {
  absl::StatusOr<DeviceProfile> profile = ParseProfile(ReadFile(path));
  EXPECT_TRUE(profile.ok()) << path << ": " << profile.status();
  return profile.ok() ? *std::move(profile) : DeviceProfile();
}

TEST(Profile, TwoPassesOverARealWorker) {
  ScratchDir dir;
  const std::string path = dir / "here.profile";
  EXPECT_THAT(Output(With(kMeasure, {"--date", "today", "--out", path})), HasSubstr(path));
  const DeviceProfile first = Read(path);
  EXPECT_EQ(first.name, "here");
  EXPECT_EQ(first.batch, 4);
  EXPECT_EQ(first.repetitions, 7);
  EXPECT_THAT(first.numerics_class, HasSubstr("cpu"));
  // LeNet's six layers by themselves, the ten representatives, four more: each once.
  EXPECT_GE(first.sub_models.size(), 14u);
  EXPECT_LE(first.sub_models.size(), 20u);
  for (const SubModelTime& row : first.sub_models) {
    EXPECT_EQ(row.model, "lenet");
    EXPECT_EQ(row.batch, 4);
    EXPECT_GT(row.seconds_1, 0);
    EXPECT_LT(row.seconds_1, 10);
    EXPECT_EQ(row.seconds_2, 0);
  }

  Output(With(kMeasure, {"--date", "later", "--out", path, "--second-pass"}));
  DeviceProfile second = Read(path);
  EXPECT_EQ(second.date, "today, later");
  for (SubModelTime& row : second.sub_models) {
    EXPECT_GT(row.seconds_2, 0);
    row.seconds_2 = row.spread_2 = 0;
  }
  EXPECT_EQ(second.sub_models, first.sub_models) << "the first pass stays as it was";

  // A pass over something else is none of these, and leaves the file alone.
  const std::string before = ReadFile(path);
  const Words again = With(kMeasure, {"--date", "x", "--out", path, "--second-pass"});
  ExpectRefused(Set(again, "--extra", "5"), "measure both with the same flags");
  ExpectRefused(Set(again, "--batch-size", "5"), "the same flags");
  EXPECT_EQ(ReadFile(path), before);
}

TEST(Profile, SeveralWorkersHaveAFileEach) {
  ScratchDir dir;
  Output(With(kMeasure, {"--date", "today", "--out", dir / "two", "--local-workers", "2"}));
  const DeviceProfile first = Read(dir / "two.local-000");
  const DeviceProfile second = Read(dir / "two.local-001");
  ASSERT_EQ(first.sub_models.size(), second.sub_models.size());
  for (size_t i = 0; i < first.sub_models.size(); ++i)
    EXPECT_EQ(first.sub_models[i].range, second.sub_models[i].range);
}

// Its local worker dials the address that central listens at, and may.
TEST(Profile, BeyondLoopback) {
  ScratchDir dir;
  Output(With(kMeasure, {"--date", "today", "--out", dir / "p", "--listen", "0.0.0.0:0",
                         "--insecure-network"}));
  EXPECT_GE(Read(dir / "p").sub_models.size(), 14u);
}

// The nominal clock is what times are of: a million times slower, a million times the seconds,
// however busy this machine is.
TEST(Profile, TimesAreThoseOfTheNominalClock) {
  ScratchDir dir;
  const Words measure = With(kMeasure, {"--date", "today", "--out", dir / "p"});
  Output(With(measure, {"--nominal-step-ns", "0.001"}));
  const DeviceProfile fast = Read(dir / "p");
  EXPECT_EQ(fast.clock, "0.001 ns a step");
  Output(With(measure, {"--nominal-step-ns", "1000"}));
  const DeviceProfile slow = Read(dir / "p");
  ASSERT_EQ(slow.sub_models.size(), fast.sub_models.size());
  for (size_t i = 0; i < fast.sub_models.size(); ++i)
    EXPECT_GT(slow.sub_models[i].seconds_1, 1e4 * fast.sub_models[i].seconds_1);
}

TEST(Profile, WrongFlags) {
  ScratchDir dir;
  const Words good = With(kMeasure, {"--date", "today", "--out", dir / "p"});
  ExpectRefused(Set(good, "--models", "alexnet"), "alexnet");
  ExpectRefused(Set(good, "--models", "lenet/0"), "--models lenet/0");
  ExpectRefused(Set(good, "--models", "lenet/x"), "--models lenet/x");
  ExpectRefused(Set(good, "--repetitions", "3"), "--repetitions");
  ExpectRefused(Set(good, "--local-workers", "0"), "at least one model and one worker");
  ExpectRefused(With(good, {"--nominal-step-ns", "-1"}), "--nominal-step-ns");
  ExpectRefused(Set(good, "--recipe", "fp7"), "fp7");
  ExpectRefused(Set(good, "--backend", "tpu"), "tpu");
  ExpectRefused(Set(good, "--family", "two\nlines"), "'family' must be 1 to 200 printable");
  ExpectRefused(With(good, {"--second-pass"}), dir / "p");
  ExpectRefused(kMeasure, "--out");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  std::ofstream(dir / "p") << "not a profile\n";
  ExpectRefused(With(good, {"--second-pass"}), dir / "p: ");
}

// A folder of devices like the one that is measured here, of other speeds.
class Profiles {
 public:
  Profiles() {
    const std::string path = dir_ / "measured";
    Output(With(kMeasure, {"--date", "today", "--out", path}));
    const DeviceProfile measured = Read(path);
    for (const double factor : {0.5, 1.0, 2.0, 3.0}) {
      DeviceProfile profile = measured;
      profile.name = absl::StrCat("times_", factor);
      profile.family = factor > 1 ? "slow" : "fast";
      for (SubModelTime& row : profile.sub_models) {
        row.seconds_2 = row.seconds_1 * factor * 1.01;
        row.seconds_1 *= factor;
      }
      const std::string folder = factor == 3.0 ? "unseen" : "known";
      std::filesystem::create_directory(dir_ / folder);
      EXPECT_TRUE(WriteText(absl::StrCat(dir_ / folder, "/", profile.name, ".profile"),
                            FormatProfile(profile))
                      .ok());
    }
  }
  std::string known() const { return dir_ / "known"; }
  std::string unseen() const { return dir_ / "unseen/times_3.profile"; }
  std::string operator/(const std::string& name) const { return dir_ / name; }

 private:
  ScratchDir dir_;
};

TEST(PredictorReport, DevicesThatWereNeverProfiled) {
  const Profiles profiles;
  const Words report = {
      "predictor-report", "--profiles", profiles.known(), "--leave-out", "configuration",
      "--samples",        "0,8"};
  const std::string path = profiles / "summary.json";
  const std::string out = Output(With(report, {"--unseen", profiles.unseen(), "--summary", path,
                                               "--figure7", profiles / "figure7.csv"}));
  EXPECT_THAT(out, HasSubstr("never profiled: " + profiles.unseen()));
  const nlohmann::json summary = Summary(path);
  EXPECT_EQ(summary["configurations"], 3);
  const nlohmann::json unseen = summary["unseen"];
  EXPECT_EQ(unseen["configurations"], 1);
  // The same device at a third of the speed: one of the known ones, but for a factor.
  EXPECT_EQ(unseen["mixture"]["within_10pct"]["8"], 1.0) << unseen;
  EXPECT_EQ(unseen["noise_floor"]["within_5pct"], 1.0);
  for (const char* method : {"mixture", "flops", "lut", "ratio"}) {
    for (const char* samples : {"0", "8"}) {
      EXPECT_TRUE(unseen.value(method, nlohmann::json())["within_10pct"].contains(samples))
          << method;
      EXPECT_TRUE(summary.value(method, nlohmann::json())["within_10pct"].contains(samples))
          << method;
    }
  }
  EXPECT_THAT(ReadFile(profiles / "figure7.csv"), HasSubstr("times_2,mixture,8,"));
  // Without it there is no such key.
  Output(With(report, {"--summary", path}));
  EXPECT_FALSE(Summary(path).contains("unseen"));

  ExpectRefused(With(report, {"--unseen", profiles.known() + "/times_1.profile"}),
                "configuration times_1 is among those that are known");
  ExpectRefused(With(report, {"--unseen", profiles / "nothing"}), "nothing: cannot be read");
  std::ofstream(profiles / "damaged") << "{\"format\": \"runnel-profile\", \"version\": 9}";
  ExpectRefused(With(report, {"--unseen", profiles / "damaged"}), "damaged: ");
  ExpectRefused({"predictor-report", "--profiles", profiles / "unseen/none"}, "unseen/none");
  ExpectRefused({"predictor-report"}, "--profiles");
  ExpectRefused(Set(report, "--samples", "-1"), "--samples");
}

int Records(const std::string& journal, const std::string& kind) {
  int records = 0;
  for (absl::string_view line : absl::StrSplit(ReadFile(journal), '\n')) {
    if (absl::StrContains(line, absl::StrCat(R"("record":")", kind, "\""))) ++records;
  }
  return records;
}

const Words kTrain = {"train",
                      "--model",
                      "lenet",
                      "--dataset",
                      "synthetic_digits",
                      "--schedule",
                      "sync_1f1b",
                      "--epochs",
                      "1",
                      "--max-batches",
                      "30",
                      "--barrier-every",
                      "10",
                      "--eval-every",
                      "-1",
                      "--batch-size",
                      "16",
                      "--micro-batches",
                      "2"};

// Ten sub-models a worker instead of every layer; what comes out is the same training.
TEST(Predictor, ARunPlansByIt) {
  const Profiles profiles;
  const std::string journal = profiles / "journal.jsonl";
  // Policy accept plans from predictions without being told.
  const Words predicted = {
      "--local-workers", "2",           "--policy", "accept", "--predictor-profiles",
      profiles.known(),  "--predictor", "mixture"};
  const nlohmann::json run = RunCentral(
      With(With(kTrain, predicted), {"--journal", journal, "--checkpoint-dir", profiles / "c"}));
  EXPECT_EQ(run["cost"], "predicted");
  EXPECT_EQ(run["predictor"], "mixture");
  EXPECT_EQ(run["plan"]["stages"].size(), 2u);
  for (const nlohmann::json& stage : run["stages"]) {
    EXPECT_GT(stage.value("predicted_s", 0.0), 0) << stage;
    EXPECT_GT(stage.value("measured_s", 0.0), 0) << stage;
  }
  EXPECT_EQ(Records(journal, "measurement"), 2);
  EXPECT_THAT(ReadFile(journal), HasSubstr(R"("predictor":"mixture")"));
  EXPECT_THAT(ReadFile(journal), HasSubstr(R"("range_seconds":[)"));
  EXPECT_EQ(run["weights_sha256"], Weights(With(kTrain, {"--local-workers", "1"})));
  // The folder of profiles is not needed to do it again, or to go on.
  std::filesystem::remove_all(profiles.known());
  EXPECT_EQ(run["weights_sha256"], Weights({"replay", "--journal", journal}));
  const nlohmann::json resumed =
      RunCentral({"resume", "--checkpoint-dir", profiles / "c", "--max-batches", "40"});
  EXPECT_EQ(resumed["cost"], "predicted");
  EXPECT_EQ(resumed["steps"], 40);
}

TEST(Predictor, PlanOfAColdStart) {
  const std::string out =
      Output(With({"plan", "--model", "lenet", "--dataset", "synthetic_digits", "--local-workers",
                   "2", "--predictor", "mlp", "--predictor-profiles", ""},
                  {"--what-if", "mbps:1"}));
  EXPECT_THAT(out, HasSubstr("layer milliseconds"));
  EXPECT_THAT(out, HasSubstr("what if mbps:1"));
}

// A network of a few profiles, from the program that trains it to a plan: written, found beside the
// profiles, judged.
TEST(Predictor, NetworksAreTrainedAndPlan) {
  const Profiles profiles;
  const Words plan = With(
      {"plan", "--model", "lenet", "--dataset", "synthetic_digits"},
      {"--local-workers", "2", "--predictor", "mlp", "--predictor-profiles", profiles.known()});
  ExpectRefused(plan, "runnel-predictor train --profiles " + profiles.known());
  if (!std::filesystem::exists(std::string(RUNNEL_BINARY_DIR) + "/runnel-predictor"))
    GTEST_SKIP() << "this build has no LibTorch";
  Process train({"runnel-predictor", "train", "--profiles", profiles.known()});
  ASSERT_EQ(train.Wait(), 0) << train.err();
  EXPECT_THAT(train.out(), HasSubstr("mlp.network"));
  EXPECT_THAT(train.out(), HasSubstr("accept_lenet.network"));
  EXPECT_THAT(Output(plan), HasSubstr("ms a micro-batch (predicted by mlp)"));
  for (const char* row : {"accept", "accept+"})
    EXPECT_THAT(Output(Set(plan, "--predictor", row)), HasSubstr(absl::StrCat("by ", row, ")")));

  const std::string path = profiles / "summary.json";
  Output({"predictor-report", "--profiles", profiles.known(), "--leave-out", "configuration",
          "--samples", "0", "--unseen", profiles.unseen(), "--summary", path});
  const nlohmann::json summary = Summary(path);
  for (const char* method : {"mlp", "accept", "accept+", "mixture"}) {
    EXPECT_GT(summary[method]["sub_models"], 0) << method;
    EXPECT_GT(summary["unseen"][method]["sub_models"], 0) << method;
  }

  std::ofstream(profiles / "known/mlp.network")
      << "{\"format\": \"runnel-network\", \"version\": 3}";
  ExpectRefused(plan, "mlp.network: network: 'row' is missing");
}

TEST(Predictor, WrongFlags) {
  ScratchDir dir;
  ExpectRefused({"train", "--policy", "accept_measured", "--predictor", "mlp"},
                "take --policy accept");
  ExpectRefused({"train", "--policy", "ftpipehd", "--predictor", "mlp"}, "take --policy ftpipehd+");
  ExpectRefused({"train", "--predictor-profiles", dir.path()}, "only --predictor looks at it");
  const Words predicted = {"plan", "--local-workers", "2", "--policy", "dp", "--predictor", "mlp"};
  ExpectRefused(With(predicted, {"--predictor-profiles", dir / "none"}), "--predictor-profiles");
  std::ofstream(dir / "bad.profile") << "runnel-profile 9\n";
  ExpectRefused(With(predicted, {"--predictor-profiles", dir.path()}), "bad.profile");
  ExpectRefused(Set(predicted, "--predictor", "oracle"), "--predictor oracle: is none of mlp");
  ExpectRefused(With(Set(predicted, "--predictor", "ratio"), {"--predictor-profiles", ""}),
                "--predictor ratio: no profile of");
}

}  // namespace
}  // namespace runnel::predictor_test
