// Whole runs of the integer recipe by the real binaries: the same bytes on any number of stages,
// over kills, check-points and replays, and with codecs that do lose something.

#include <signal.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const Words kNiti = {"train",
                     "--model",
                     "lenet",
                     "--dataset",
                     "synthetic_digits",
                     "--recipe",
                     "niti",
                     "--backend",
                     "ref",
                     "--batch-size",
                     "8",
                     "--eval-every",
                     "0",
                     "--barrier-every",
                     "2"};
const Words kSync = With(kNiti, {"--schedule", "sync_1f1b", "--max-batches", "3"});
const Words kAsync = With(kNiti, {"--local-workers", "3", "--max-batches", "6"});

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

TEST(IntegerTraining, EachProfileHasItsOwnWeights) {
  Words niti2020 = kSync, niti2021 = kSync;
  niti2020[6] = "niti:niti2020";
  niti2021[6] = "niti:niti2021";
  const std::string mandheling = Weights(kSync);
  EXPECT_NE(Weights(niti2020), mandheling);
  EXPECT_NE(Weights(niti2021), mandheling);
  EXPECT_NE(Weights(niti2021), Weights(niti2020));
  EXPECT_EQ(Weights(With(niti2020, {"--local-workers", "2"})), Weights(niti2020));
  EXPECT_EQ(Weights(With(niti2021, {"--local-workers", "2"})), Weights(niti2021));
}

TEST(IntegerTraining, AsyncIsAFunctionOfThePlanAndTellsWhatItDid) {
  const json summary = RunCentral(kAsync);
  EXPECT_EQ(Weights(With(kAsync, {"--link-delay-ms", "3"})), summary["weights_sha256"]);
  EXPECT_EQ(summary["recipe"], "niti");
  EXPECT_EQ(summary["gradient_bits"], "2");
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

TEST(IntegerTraining, FlagsFromAFileAreTheSame) {
  ScratchDir dir;
  std::ofstream(dir / "c") << "gradient-bits=0:4/3,1:2\nrecipe=niti\n";
  const json summary =
      RunCentral({"train", "--config", dir / "c", "--backend", "ref", "--batch-size", "8",
                  "--max-batches", "2", "--eval-every", "0", "--lr", "0.1"});
  EXPECT_EQ(summary["gradient_bits"], "0:4/3,1:2");
  EXPECT_EQ(summary["recipe"], "niti");
}

TEST(IntegerTraining, WhatTheRecipeDoesNotLookAtIsSaidInOneLine) {
  Process central(With({"runnel-central"},
                       With(kSync, {"--lr", "0.1", "--milestones", "1", "--max-batches", "1"})));
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

TEST(IntegerTraining, AKilledWorkerEndsTheRunAndTheCheckpointGoesOn) {
  ScratchDir dir;
  const std::string whole = Weights(With(kAsync, {"--max-batches", "40"}));
  Process central(With({"runnel-central"}, With(kAsync, {"--max-batches", "40", "--checkpoint-dir",
                                                         dir / "c", "--journal", dir / "j"})));
  ASSERT_TRUE(WaitForText(dir / "j", "\"checkpoint\"")) << central.err();
  const std::vector<pid_t> workers = central.Children();
  ASSERT_EQ(workers.size(), 3u);
  kill(workers[1], SIGKILL);
  EXPECT_EQ(central.Wait(30), 1);
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "40"}), whole);
  Process replay({"runnel-central", "replay", "--journal", dir / "j"});
  EXPECT_EQ(replay.Wait(), 0) << replay.err();
  EXPECT_THAT(replay.out(), HasSubstr("the same weights"));
  EXPECT_EQ(RunCentral({"eval", "--checkpoint-dir", dir / "c"})["weights_sha256"], whole);
}

TEST(IntegerTraining, LayersAreMeasuredForAPlan) {
  const json summary = RunCentral(With(kAsync, {"--policy", "dp", "--link-mbps", "100"}));
  EXPECT_EQ(summary["plan"]["stages"].size(), 3u);
}

}  // namespace
}  // namespace runnel
