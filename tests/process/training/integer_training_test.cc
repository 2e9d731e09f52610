// Whole runs of the integer recipe by the real binaries: the same bytes on any number of stages,
// over kills, check-points and replays, and with codecs that do lose something.

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::integer_training_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// clang-format off
const Words kNiti = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--recipe", "niti",
                     "--backend", "cpu", "--batch-size", "8", "--eval-every", "0",
                     "--eval-batch-size", "250"};
// clang-format on
const Words kSync = With(kNiti, {"--schedule", "sync_1f1b", "--max-batches", "3"});
const Words kThree = With(kNiti, {"--local-workers", "3", "--barrier-every", "10"});
const Words kAsync = With(kThree, {"--max-batches", "12"});

size_t Count(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(IntegerTraining, SyncEqualsThePlainLoopOnOneToThreeStages) {
  std::string before;
  for (const char* micro_batches : {"1", "4"}) {
    const Words sync = With(kSync, {"--micro-batches", micro_batches});
    const std::string plain = Weights(With(sync, {"--local-workers", "0"}));
    EXPECT_EQ(plain.size(), 64u);
    EXPECT_NE(plain, before);
    before = plain;
    for (const char* workers : {"1", "2", "3"}) {
      EXPECT_EQ(Weights(With(sync, {"--local-workers", workers})), plain)
          << workers << " stages, M = " << micro_batches;
    }
  }
}

TEST(IntegerTraining, EachProfileHasItsOwnWeightsOnAnyNumberOfStages) {
  std::vector<std::string> weights = {Weights(kSync)};
  for (const char* profile : {"niti:niti2020", "niti:niti2021"}) {
    Words words = kSync;
    *std::find(words.begin(), words.end(), "niti") = profile;
    weights.push_back(Weights(words));
    EXPECT_EQ(Weights(With(words, {"--local-workers", "2"})), weights.back()) << profile;
  }
  EXPECT_NE(weights[0], weights[1]);
  EXPECT_NE(weights[0], weights[2]);
  EXPECT_NE(weights[1], weights[2]);
}

// Backends and instruction sets are of no account: "auto" may be LibTorch's, which has no integers.
TEST(IntegerTraining, TheBackendDoesNotMatter) {
  const Words common = {"train", "--recipe",     "niti", "--batch-size",      "8",  "--max-batches",
                        "2",     "--eval-every", "0",    "--eval-batch-size", "250"};
  const std::string weights = Weights(With(common, {"--backend", "cpu"}));
  for (const char* backend : {"auto", "cpu:portable"})
    EXPECT_EQ(Weights(With(common, {"--backend", backend})), weights) << backend;
}

TEST(IntegerTraining, AsyncIsAFunctionOfThePlanAndTellsWhatItDid) {
  const json summary = RunCentral(kAsync);
  EXPECT_EQ(Weights(With(kAsync, {"--link-delay-ms", "3"})), summary["weights_sha256"]);
  EXPECT_EQ(summary["recipe"], "niti");
  EXPECT_EQ(summary["gradient_bits"], "0:2,2:1");
  EXPECT_EQ(summary["codecs"]["forward"], "int8");
  ASSERT_EQ(summary["links"].size(), 2u);
  for (const json& link : summary["links"]) {
    EXPECT_EQ(link["codec_forward"], "int8");
    EXPECT_EQ(link["codec_backward"], "int8");
    EXPECT_GT(link["raw_bytes_forward"].get<double>() / link["bytes_forward"].get<double>(), 3.8);
    EXPECT_GT(link["raw_bytes_backward"].get<double>() / link["bytes_backward"].get<double>(), 3.8);
  }
  // Other bits are other steps; a schedule that begins with these does not differ yet.
  EXPECT_NE(Weights(With(kAsync, {"--gradient-bits", "4/3"})), summary["weights_sha256"]);
  EXPECT_EQ(Weights(With(kAsync, {"--gradient-bits", "0:2/2,1:5"})), summary["weights_sha256"]);
}

// The loss decides when; the journal knows, and so do a run that goes on and a replay.
TEST(IntegerTraining, BitsThatFollowTheLossAreJournalledAndReplayed) {
  ScratchDir dir;
  const Words common = With(kNiti, {"--local-workers", "2", "--barrier-every", "5"});
  RunCentral(With(common, {"--gradient-bits", "plateau:5:1", "--max-batches", "25", "--journal",
                           dir / "j", "--checkpoint-dir", dir / "c"}));
  const size_t changes = Count(ReadFile(dir / "j"), "\"training_change\"");
  EXPECT_GE(changes, 1u) << ReadFile(dir / "j");
  const std::string weights =
      Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "35"});
  EXPECT_NE(Weights(With(common, {"--gradient-bits", "5", "--max-batches", "35"})), weights);
  EXPECT_THAT(Replay(dir / "j"), HasSubstr(weights));
}

TEST(IntegerTraining, FlagsFromAFileAreTheSame) {
  ScratchDir dir;
  std::ofstream(dir / "c")
      << "gradient-bits=0:4/3,1:2\nrecipe=niti\nbatch-size=64\nmilestones=1,2\n";
  const json summary =
      RunCentral({"train", "--config", dir / "c", "--backend", "cpu", "--batch-size", "8",
                  "--max-batches", "2", "--eval-every", "0", "--lr", "0.1"});
  EXPECT_EQ(summary["gradient_bits"], "0:4/3,1:2");
  EXPECT_EQ(summary["recipe"], "niti");
  EXPECT_EQ(summary["steps"], 2);
}

TEST(IntegerTraining, WhatTheRecipeDoesNotLookAtIsSaidInOneLine) {
  Process central(With({"runnel-central"}, With(kSync, {"--lr", "0.1", "--milestones", "1"})));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_THAT(central.err(), HasSubstr("recipe niti does not look at --lr, --milestones"));
}

TEST(IntegerTraining, LossyCodecsCrossIntegerBoundaries) {
  const Words lossy =
      With(kAsync, {"--codec-forward", "mbq:4", "--codec-backward", "stochastic:8"});
  const json summary = RunCentral(lossy);
  EXPECT_EQ(Weights(lossy), summary["weights_sha256"]);
  EXPECT_NE(Weights(kAsync), summary["weights_sha256"]);
  EXPECT_EQ(summary["links"][0]["codec_forward"], "mbq:4");
}

// A run that is killed behind a check-point ends with the weights of one that is not.
std::string ResumedWeights(const Words& run, const ScratchDir& dir) {
  Process central(
      With({"runnel-central"}, With(run, {"--checkpoint-dir", dir / "c", "--journal", dir / "j"})));
  EXPECT_TRUE(WaitForText(dir / "j", "\"checkpoint\"")) << central.err();
  central.Signal(SIGKILL);
  central.Wait();
  return Weights({"resume", "--checkpoint-dir", dir / "c"});
}

TEST(IntegerTraining, TheCheckpointOfAKilledRunGoesOn) {
  ScratchDir dir;
  const Words run = With(kThree, {"--max-batches", "200"});
  const std::string whole = Weights(run);
  EXPECT_EQ(ResumedWeights(run, dir), whole);
  EXPECT_EQ(RunCentral({"eval", "--checkpoint-dir", dir / "c"})["weights_sha256"], whole);
}

// Stale weights depend on the plan, so they are those of the journal.
TEST(IntegerTraining, ARunThatLostAWorkerGoesOnAndReplays) {
  ScratchDir dir;
  const Words run = With(kThree, {"--max-batches", "200", "--journal", dir / "j"});
  Process central(With({"runnel-central"}, run));
  ASSERT_TRUE(WaitForText(dir / "j", "\"barrier\"")) << central.err();
  const std::vector<pid_t> workers = central.Children();
  ASSERT_EQ(workers.size(), 3u);
  kill(workers[1], SIGKILL);
  EXPECT_EQ(central.Wait(60), 0) << central.err();
  ExpectReplays(dir / "j");
}

// Speculation and a period of one are dynamic rescaling; what keeps scales is a training of its
// own, and the same one on any number of stages and any backend.
TEST(IntegerTraining, KeptScalesAreAFunctionOfTheTrainingAlone) {
  Words sync = With(kNiti, {"--schedule", "sync_1f1b", "--max-batches", "12"});
  sync.erase(std::find(sync.begin(), sync.end(), "--backend"));
  sync.erase(std::find(sync.begin(), sync.end(), "cpu"));
  const auto weights = [&](const char* rescale, const char* workers, const char* backend) {
    return Weights(
        With(sync, {"--rescale", rescale, "--local-workers", workers, "--backend", backend}));
  };
  const std::string dynamic = weights("dynamic", "0", "cpu");
  EXPECT_EQ(weights("speculate", "0", "cpu"), dynamic);
  EXPECT_EQ(weights("speculate", "2", "cpu:portable"), dynamic);
  EXPECT_EQ(weights("adaptive:0,1", "0", "cpu"), dynamic);
  const std::string kept = weights("adaptive:4", "0", "cpu");
  EXPECT_NE(kept, dynamic);
  EXPECT_NE(weights("static:4", "0", "cpu"), kept);
  EXPECT_EQ(weights("adaptive:4", "3", "auto"), kept);
  EXPECT_EQ(weights("adaptive:4", "2", "cpu:portable"), kept);
}

// Slices change no bytes, whoever chooses them; shifted ones are a training of their own, which the
// journal has.
TEST(IntegerTraining, SlicesOfABatch) {
  ScratchDir dir;
  Words sync = With(kNiti, {"--schedule", "sync_1f1b", "--max-batches", "12"});
  sync.erase(std::find(sync.begin(), sync.end(), "--backend"));
  sync.erase(std::find(sync.begin(), sync.end(), "cpu"));
  const auto weights = [&](const char* split, const char* workers, const char* backend) {
    return Weights(With(sync, {"--batch-split", split, "--local-workers", workers, "--backend",
                               backend, "--journal", dir / (std::string("j") + split + workers)}));
  };
  const std::string whole = weights("off", "0", "cpu");
  EXPECT_EQ(weights("3", "2", "cpu"), whole);
  EXPECT_EQ(weights("auto", "0", "cpu"), whole);
  const std::string shifted = weights("shifted:1", "0", "cpu");
  EXPECT_NE(shifted, whole);
  EXPECT_EQ(weights("shifted:1", "1", "cpu:portable"), shifted);
  EXPECT_EQ(weights("shifted:1", "3", "cpu"), shifted);
  EXPECT_THAT(ReadFile(dir / "jshifted:13"), HasSubstr("\"batch-split\":\"shifted:1\""));
  ExpectReplays(dir / "jshifted:13");
}

// Which gradient bits held from which step on, at last.
std::string BitsInJournal(const std::string& path) {
  std::map<int64_t, std::string> bits;
  for (absl::string_view line : absl::StrSplit(ReadFile(path), '\n', absl::SkipEmpty())) {
    const json record = json::parse(line);
    if (record["record"] == "run_resumed") bits.erase(bits.upper_bound(record["step"]), bits.end());
    if (record["record"] == "training_change")
      bits[record["from_step"]] = record["gradient_bits"].get<std::string>();
  }
  std::string text;
  for (const auto& [step, value] : bits) absl::StrAppend(&text, step, ":", value, " ");
  return text;
}

// The rule goes on with the loss that it has seen and the barriers that it has counted, of which
// there are some at step 48 and later.
TEST(IntegerTraining, ARuleIsInTheCheckpoint) {
  ScratchDir dir;
  const Words run = With(kNiti, {"--local-workers", "2", "--barrier-every", "4", "--schedule",
                                 "sync_1f1b", "--gradient-bits", "plateau:5:3"});
  const std::string weights = Weights(With(run, {"--max-batches", "160", "--journal", dir / "j"}));
  const std::string bits = BitsInJournal(dir / "j");
  EXPECT_GE(Count(bits, ":"), 2u) << bits;

  ScratchDir stopped;
  RunCentral(With(
      run, {"--max-batches", "48", "--journal", stopped / "j", "--checkpoint-dir", stopped / "c"}));
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", stopped / "c", "--max-batches", "160"}),
            weights);
  EXPECT_EQ(BitsInJournal(stopped / "j"), bits);

  ScratchDir killed;
  Process central(With({"runnel-central"}, With(run, {"--max-batches", "160", "--checkpoint-dir",
                                                      killed / "c", "--journal", killed / "j"})));
  ASSERT_TRUE(WaitForRecords(killed / "j", "checkpoint", 12)) << central.err();
  central.Signal(SIGKILL);
  central.Wait();
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", killed / "c"}), weights);
  EXPECT_EQ(BitsInJournal(killed / "j"), bits);
}

TEST(IntegerTraining, KeptScalesAreInTheCheckpointOfAKilledRun) {
  ScratchDir dir;
  const Words run = With(kThree, {"--max-batches", "120", "--rescale", "adaptive:6"});
  EXPECT_EQ(ResumedWeights(run, dir), Weights(run));
}

TEST(IntegerTraining, KeptScalesOutliveALostWorkerAndReplay) {
  ScratchDir dir;
  const Words run = With(kThree, {"--max-batches", "120", "--rescale", "adaptive:6", "--journal",
                                  dir / "j", "--replicate-every", "1"});
  Process central(With({"runnel-central"}, run));
  ASSERT_TRUE(WaitForText(dir / "j", "\"barrier\"")) << central.err();
  const std::vector<pid_t> workers = central.Children();
  ASSERT_EQ(workers.size(), 3u);
  kill(workers[1], SIGKILL);
  EXPECT_EQ(central.Wait(60), 0) << central.err();
  EXPECT_THAT(ReadFile(dir / "j"), HasSubstr("\"rescale\":\"adaptive:6\""));
  ExpectReplays(dir / "j");
}

TEST(IntegerTraining, LayersAreMeasuredForAPlan) {
  const json summary = RunCentral(With(kAsync, {"--policy", "dp", "--link-mbps", "100"}));
  EXPECT_EQ(summary["plan"]["stages"].size(), 3u);
}

}  // namespace
}  // namespace runnel::integer_training_test
