// Runs whose links send the bits of the recipe's level, by the real binaries.

#include <algorithm>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::recipe_codec_test {
namespace {

using nlohmann::json;

// Cut into three behind both pools: the next stage begins with a convolution or a linear layer.
// clang-format off
const Words kTrain = {"train", "--model", "lenet", "--dataset", "synthetic_digits",
                      "--batch-size", "32", "--eval-every", "-1", "--backend", "cpu",
                      "--max-batches", "12", "--barrier-every", "1", "--policy", "uniform"};
// clang-format on
const Words kThree = {"--local-workers", "3"};
const Words kSbm = With(kTrain, {"--recipe", "sbm:8,8,8"});
// Any five losses stand still: it turns at steps 5 and 10.
const Words kTurns = With(kSbm, {"--precision", "pfq:3,4,8/6,6,8@1000,1,1"});
const Words kSync = With(kTurns, {"--schedule", "sync_1f1b", "--micro-batches", "2"});
const Words kAsync = With(kTurns, {"--schedule", "async_1f1b"});

// Forward alone they lose nothing: such an operator finds the grid that it would find without them.
const Words kDownInBits = {"--codec-forward", "recipe", "--codec-backward", "identity"};
const Words kInBits = {"--codec-forward", "recipe", "--codec-backward", "recipe"};

TEST(RecipeCodec, ActivationsInTheLevelsBitsGiveTheWeightsOfThePlainLoop) {
  const std::string plain = Weights(With(kSync, {"--local-workers", "0"}));
  const json cut = RunCentral(With(With(kSync, kDownInBits), kThree));
  EXPECT_EQ(cut["weights_sha256"], plain);
  EXPECT_EQ(cut["plan"]["stages"].size(), 3u);
  EXPECT_EQ(cut["precision"]["turns"], 2);
  const Words dorefa = With(kTrain, {"--recipe", "dorefa:8,4,8", "--schedule", "sync_1f1b"});
  EXPECT_EQ(Weights(With(With(dorefa, kDownInBits), kThree)),
            Weights(With(dorefa, {"--local-workers", "0"})));
  const Words niti = With(kTrain, {"--recipe", "niti", "--local-workers", "2"});
  const json integers = RunCentral(With(niti, kInBits));
  EXPECT_EQ(integers["weights_sha256"], Weights(niti));
  EXPECT_EQ(integers["links"][0]["codec_forward"], "int8");
}

// Frame headers included.
TEST(RecipeCodec, FramesTakeTheLevelsBits) {
  for (const auto& [precision, bits] : {std::pair("fixed:3/6", 3.0), std::pair("fixed:8/8", 8.0)}) {
    const json run =
        RunCentral(With(With(kSbm, kInBits), With(kThree, {"--precision", precision})));
    ASSERT_EQ(run["links"].size(), 2u);
    for (const json& link : run["links"]) {
      const double sent = link["bytes_forward"], raw = link["raw_bytes_forward"];
      EXPECT_LE(32 * sent / raw, bits + 0.3) << precision;
      EXPECT_GE(32 * sent / raw, bits) << precision;
    }
  }
}

TEST(RecipeCodec, RunsThatTurnResumeAndReplay) {
  ScratchDir dir;
  for (const Words& schedule : {kSync, kAsync}) {
    const std::string journal = dir / (schedule == kSync ? "sync" : "async");
    const Words run = With(With(schedule, kInBits), kThree);
    Process central(
        With({"runnel-central"}, With(run, {"--summary", dir / "s.json", "--journal", journal})));
    EXPECT_EQ(central.Wait(), 0) << central.err();
    const json whole = Summary(dir / "s.json");
    EXPECT_EQ(whole["precision"]["turns"], 2);
    ExpectReplays(journal);
  }
  // Across the first turn, at step 5. Several micro-batches in flight would see other weights.
  const Words run = With(With(kSync, kInBits), kThree);
  const std::string whole = Weights(run);
  Words begun = With(run, {"--checkpoint-dir", dir / "c"});
  *(std::find(begun.begin(), begun.end(), "--max-batches") + 1) = "5";
  RunCentral(begun);
  const json resumed = RunCentral({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "12"});
  EXPECT_EQ(resumed["weights_sha256"], whole);
  EXPECT_EQ(resumed["precision"]["turns"], 2);
}

// The survivors have another cut: it loses nothing either, since all layers of dorefa's LeNet but the
// last end with a ReLU or a max pool.
TEST(RecipeCodec, AWorkerThatIsLostBehindATurnChangesNothing) {
  Words run = With(With(kTrain, With(kDownInBits, kThree)),
                   {"--recipe", "dorefa:8,8,8", "--schedule", "sync_1f1b", "--micro-batches", "2",
                    "--precision", "pfq:3,4,8/6,6,8@1000,1,5"});
  *(std::find(run.begin(), run.end(), "--max-batches") + 1) = "200";
  *(std::find(run.begin(), run.end(), "--barrier-every") + 1) = "5";
  const json whole = RunCentral(run);
  ASSERT_EQ(whole["precision"]["turns"], 2);
  for (const char* lost : {"local-000", "local-001", "local-002"}) {
    const json summary = SummaryBehindALoss(run, lost, "training_change");
    EXPECT_EQ(summary["weights_sha256"], whole["weights_sha256"]) << lost;
  }
}

TEST(RecipeCodec, WhatHasNoGridsIsRefusedInOneLine) {
  ExpectRefused(
      With(kTrain, kDownInBits),
      "--codec-forward recipe: recipe fp32 has no grids whose bits a link could take; take "
      "--recipe sbm:8,8,8, or another codec");
  ExpectRefused(With(kTrain, {"--recipe", "octo", "--codec-backward", "0:identity,1:recipe"}),
                "--codec-backward 0:identity,1:recipe: recipe octo has no grids");
  ExpectRefused(With(kTrain, {"--recipe", "bf16", "--codec-forward", "recipe"}), "has no grids");
  ExpectRefused(With(kSbm, {"--codec-forward", "recipe:4"}), "recipe:4");
  ExpectRefused(With(kSbm, {"--codec-forward", "recipe", "--bits", "bandwidth"}),
                "--codec-forward recipe: the recipe's level gives the bits, and --bits bandwidth "
                "would give others; leave out --bits or codec recipe");
}

}  // namespace
}  // namespace runnel::recipe_codec_test
