// Runs whose precision changes while they train, by the real binaries: the same bytes on one to
// three stages and as the plain loop, over check-points and replays.

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::precision_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// clang-format off
const Words kTrain = {"train", "--model", "lenet", "--dataset", "synthetic_digits",
                      "--batch-size", "8", "--eval-every", "0", "--eval-batch-size", "250",
                      "--backend", "cpu", "--max-batches", "12", "--barrier-every", "1"};
// clang-format on
const Words kSbm = With(kTrain, {"--recipe", "sbm:8,8,8"});
// clang-format off
const Words kSmallFloats = {"train", "--model", "lenet", "--dataset", "synthetic_digits",
                            "--batch-size", "8", "--eval-every", "-1", "--backend", "cpu",
                            "--barrier-every", "1", "--recipe", "fp8_chunk:fp32",
                            "--schedule", "sync_1f1b", "--micro-batches", "2"};
// clang-format on
// Any five losses stand still: it turns at steps 5 and 10.
const Words kTurns = With(kSbm, {"--precision", "pfq:3,4,8/6,6,8@1000,1,1"});
const Words kSync = With(kTurns, {"--schedule", "sync_1f1b", "--micro-batches", "2"});
const Words kAsync = With(kTurns, {"--schedule", "async_1f1b", "--local-workers", "3"});

TEST(Precision, SyncThatTurnsEqualsThePlainLoopOnOneToThreeStages) {
  const json plain = RunCentral(With(kSync, {"--local-workers", "0"}));
  EXPECT_EQ(plain["precision"]["turns"], 2);
  ASSERT_EQ(plain["precision"]["levels"].size(), 3u);
  EXPECT_EQ(plain["precision"]["levels"][1]["bits"], "4/6");
  EXPECT_EQ(plain["precision"]["levels"][1]["steps"], 5);
  EXPECT_LT(plain["precision"]["share_of_8_8"], 0.6);
  const json& claimed = plain["precision"]["effective_macs"];
  EXPECT_DOUBLE_EQ(plain["effective_macs"].get<double>(),
                   claimed["forward"].get<double>() + claimed["input_gradient"].get<double>() +
                       claimed["weight_gradient"].get<double>())
      << "counted by the programs, and claimed";
  EXPECT_DOUBLE_EQ(plain["evaluations"].back()["effective_macs"].get<double>(),
                   plain["effective_macs"].get<double>());
  for (const char* workers : {"1", "2", "3"}) {
    const json cut = RunCentral(With(kSync, {"--local-workers", workers}));
    EXPECT_EQ(cut["weights_sha256"], plain["weights_sha256"]) << workers << " stages";
    EXPECT_EQ(cut["accuracy"], plain["accuracy"]) << workers << " stages";
    EXPECT_EQ(cut["precision"], plain["precision"]);
  }
  EXPECT_NE(Weights(With(
                kSbm, {"--schedule", "sync_1f1b", "--micro-batches", "2", "--local-workers", "0"})),
            plain["weights_sha256"]);
}

// Rounded steps and a loss scale, whatever the cut. Unit tests have sums in chunks, which are slow.
TEST(Fp8Chunk, StagesAndResumedRunsHaveTheWeightsOfThePlainLoop) {
  ScratchDir dir;
  const Words four = With(kSmallFloats, {"--max-batches", "4"});
  const json plain = RunCentral(With(four, {"--local-workers", "0"}));
  EXPECT_EQ(plain["products"], "emulated");
  EXPECT_EQ(plain["loss_scale"], 1024);
  EXPECT_EQ(Weights(With(four, {"--local-workers", "2"})), plain["weights_sha256"]);
  RunCentral(With(kSmallFloats, {"--max-batches", "2", "--checkpoint-dir", dir / "c"}));
  const json resumed = RunCentral({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "4"});
  EXPECT_EQ(resumed["weights_sha256"], plain["weights_sha256"]);
}

// Widths, compensations and fixed points are states of the layers, whatever the cut: the same weights
// as the plain loop, over a check-point and, for async runs, a replay.
TEST(Recipes, StatesOfOperatorsAreThoseOfThePlainLoop) {
  for (const char* recipe : {"afp", "octo_lac", "wageubn"}) {
    SCOPED_TRACE(recipe);
    ScratchDir dir;
    const Words run = {"train",
                       "--model",
                       "lenet",
                       "--dataset",
                       "synthetic_digits",
                       "--batch-size",
                       "8",
                       "--eval-every",
                       "-1",
                       "--backend",
                       "cpu",
                       "--barrier-every",
                       "1",
                       "--recipe",
                       recipe};
    const Words sync = With(run, {"--schedule", "sync_1f1b", "--micro-batches", "4"});
    const Words four = With(sync, {"--max-batches", "4"});
    const std::string plain = Weights(With(four, {"--local-workers", "0"}));
    EXPECT_EQ(Weights(With(four, {"--local-workers", "3"})), plain);
    RunCentral(
        With(sync, {"--max-batches", "2", "--local-workers", "3", "--checkpoint-dir", dir / "c"}));
    const json resumed =
        RunCentral({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "4"});
    EXPECT_EQ(resumed["weights_sha256"], plain);
    RunCentral(With(run, {"--schedule", "async_1f1b", "--local-workers", "3", "--max-batches", "4",
                          "--journal", dir / "j"}));
    Replay(dir / "j");
  }
}

// Two residual blocks, one with a convolution on its shortcut.
constexpr char kResidual[] = R"({"format": "runnel-model", "version": 1, "name": "residual",
  "input": [1, 28, 28], "classes": 10, "layers": [
    {"name": "stem", "ops": [{"op": "conv", "out": 4, "kernel": 5, "stride": 2}, {"op": "relu"}]},
    {"name": "same", "ops": [
      {"op": "conv", "out": 4, "kernel": 3, "padding": 1}, {"op": "batch_norm"}, {"op": "relu"},
      {"op": "conv", "out": 4, "kernel": 3, "padding": 1}, {"op": "batch_norm"},
      {"op": "add", "from": [5, 0]}, {"op": "relu"}]},
    {"name": "half", "ops": [
      {"op": "conv", "out": 8, "kernel": 3, "stride": 2, "padding": 1}, {"op": "batch_norm"},
      {"op": "relu"}, {"op": "conv", "out": 8, "kernel": 3, "padding": 1}, {"op": "batch_norm"},
      {"op": "conv", "out": 8, "stride": 2, "from": 0}, {"op": "batch_norm"},
      {"op": "add", "from": [5, 7]}, {"op": "relu"}]},
    {"name": "head", "ops": [{"op": "global_avg_pool"}, {"op": "linear", "out": 10}]}]})";

Words GatedRun(const ScratchDir& dir) {
  const std::string model = dir / "residual.json";
  std::ofstream(model) << kResidual;
  return {"train",
          "--model",
          "json:" + model,
          "--dataset",
          "synthetic_digits",
          "--batch-size",
          "8",
          "--eval-every",
          "-1",
          "--backend",
          "cpu",
          "--barrier-every",
          "1",
          "--max-batches",
          "4"};
}

// Samples skip by a draw, so what was done is known beforehand, and the kernels count it.
TEST(Gates, StagesHaveTheWeightsOfThePlainLoopAndDoWhatIsClaimed) {
  ScratchDir dir;
  const Words gated = GatedRun(dir), sync = {"--schedule", "sync_1f1b", "--micro-batches", "2"};
  const std::vector<Words> runs = {{"--recipe", "sbm:8,8,8", "--gates", "ff:0,3,8/6,6,8@hold:0.5"},
                                   {"--recipe", "fp32", "--gates", "ff:0,32/32,32@hold:0.7"}};
  for (const Words& run : runs) {
    const json plain = RunCentral(With(With(gated, sync), With(run, {"--local-workers", "0"})));
    const json& claimed = plain["precision"];
    EXPECT_EQ(plain["macs_done"], claimed["macs_done"]) << "counted by the kernels, and claimed";
    EXPECT_FALSE(plain.contains("products")) << "grids beside gates are multiplied as codes";
    EXPECT_LT(claimed["macs_done"], 0.75 * claimed["macs_in_full"].get<double>());
    EXPECT_NEAR(plain["effective_macs"].get<double>(),
                claimed["effective_share"].get<double>() * claimed["macs_in_full"].get<double>(),
                1);
    for (const char* workers : {"2", "3"}) {
      const json cut = RunCentral(With(With(gated, sync), With(run, {"--local-workers", workers})));
      EXPECT_EQ(cut["weights_sha256"], plain["weights_sha256"]) << workers << " stages";
      EXPECT_EQ(cut["macs_done"], plain["macs_done"]);
    }
  }
  const Words async = With(runs[1], {"--schedule", "async_1f1b", "--local-workers", "2"});
  EXPECT_EQ(Weights(With(gated, async)), Weights(With(gated, async)));
}

// Cuts in front of and behind gated blocks; exploring goes on where a check-point ended.
TEST(Gates, ThoseThatLearnHaveTheWeightsOfThePlainLoopAndResume) {
  ScratchDir dir;
  const Words run =
      With(GatedRun(dir), {"--schedule", "sync_1f1b", "--micro-batches", "2", "--recipe",
                           "sbm:8,8,8", "--gates", "ff:0,3,8/6,6,8@beta:0.01"});
  const json plain = RunCentral(With(run, {"--local-workers", "0"}));
  EXPECT_GT(plain["macs_done"], 0);
  EXPECT_NE(plain["macs_done"], plain["precision"]["macs_in_full"]);
  EXPECT_FALSE(plain["precision"].contains("macs_done")) << "nobody can claim it";
  Words evaluated = With(run, {"--local-workers", "3"});
  *(std::find(evaluated.begin(), evaluated.end(), "--eval-every") + 1) = "4";
  const json cut = RunCentral(evaluated);
  EXPECT_EQ(cut["weights_sha256"], plain["weights_sha256"]);
  EXPECT_EQ(cut["macs_done"], plain["macs_done"]);
  ASSERT_EQ(cut["evaluations"].size(), 1u);
  const json& gates = cut["precision"]["gates"];
  const double taken =
      gates["effective_share"].get<double>() * cut["precision"]["macs_in_full"].get<double>();
  EXPECT_NEAR(cut["evaluations"][0]["effective_macs"].get<double>() / taken, 1, 1e-9);
  double chosen = 0;  // by what the samples chose, in the blocks alone, without exploring
  for (const json& layer : gates["layers"]) {
    ASSERT_EQ(layer["effective_macs"].size(), layer["options"].size());
    for (const json& option : layer["effective_macs"])
      for (const json& pass : option) chosen += pass.get<double>();
  }
  EXPECT_GT(chosen, 0);
  EXPECT_LT(chosen, taken);
  Words begun = With(run, {"--local-workers", "2", "--checkpoint-dir", dir / "c"});
  *(std::find(begun.begin(), begun.end(), "--max-batches") + 1) = "2";
  RunCentral(begun);
  const json resumed = RunCentral({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "4"});
  EXPECT_EQ(resumed["weights_sha256"], plain["weights_sha256"]);
}

// Any five losses stand still: the target turns at steps 5 and 10.
TEST(CostTarget, StagesHaveTheWeightsOfThePlainLoopAndResume) {
  ScratchDir dir;
  Words run =
      With(GatedRun(dir), {"--policy", "uniform", "--schedule", "sync_1f1b", "--micro-batches", "2",
                           "--recipe", "sbm:8,8,8", "--gates", "ff:0,3,8/6,6,8@beta:0.01"});
  const auto with_steps = [&run](const std::string& steps) {
    *(std::find(run.begin(), run.end(), "--max-batches") + 1) = steps;
    return run;
  };
  const Words whole = With(with_steps("12"), {"--cost-target", "0.5,2,4@1000,1,1"});
  const json plain = RunCentral(With(whole, {"--local-workers", "0"}));
  const json& gates = plain["precision"]["gates"];
  EXPECT_EQ(gates["turns"], 2);
  EXPECT_EQ(gates["samples"], 12 * 8);
  ASSERT_EQ(gates["cost_targets"].size(), 3u);
  EXPECT_EQ(gates["cost_targets"][0]["samples"], 5 * 8);
  EXPECT_EQ(gates["cost_targets"][2]["samples"], 2 * 8);
  ASSERT_EQ(gates["layers"].size(), 2u);
  for (const json& layer : gates["layers"]) {
    EXPECT_EQ(layer["options"], (json{"0", "3/6", "8/8"}));
    int64_t samples = 0;
    for (const json& count : layer["samples"]) samples += count.get<int64_t>();
    EXPECT_EQ(samples, 12 * 8);
  }
  for (const char* workers : {"1", "2", "3"}) {
    const json cut = RunCentral(With(whole, {"--local-workers", workers}));
    EXPECT_EQ(cut["weights_sha256"], plain["weights_sha256"]) << workers << " stages";
    EXPECT_EQ(absl::StrCat(cut["plan"]["stages"].size()), workers);
    EXPECT_EQ(cut["precision"]["gates"]["layers"], gates["layers"]);
    EXPECT_EQ(cut["precision"]["gates"]["cost_targets"], gates["cost_targets"]);
  }
  EXPECT_NE(Weights(With(with_steps("12"), {"--local-workers", "0"})), plain["weights_sha256"])
      << "the target decides";
  // Behind the first turn; totals are those of the whole run.
  RunCentral(With(with_steps("7"), {"--cost-target", "0.5,2,4@1000,1,1", "--local-workers", "2",
                                    "--checkpoint-dir", dir / "c"}));
  const json resumed = RunCentral({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "12"});
  EXPECT_EQ(resumed["weights_sha256"], plain["weights_sha256"]);
  EXPECT_EQ(resumed["precision"]["gates"]["layers"], gates["layers"]);
  EXPECT_EQ(resumed["precision"]["gates"]["cost_targets"], gates["cost_targets"]);
}

// Totals are those of the undisturbed run, too: what was trained in vain is not in them.
TEST(CostTarget, AWorkerThatIsLostBehindATurnChangesNothing) {
  ScratchDir dir;
  Words run =
      With(GatedRun(dir), {"--policy", "uniform", "--schedule", "sync_1f1b", "--micro-batches", "2",
                           "--recipe", "sbm:8,8,8", "--gates", "ff:0,3,8/6,6,8@beta:0.01",
                           "--cost-target", "0.5,2,4@1000,1,5", "--local-workers", "3"});
  *(std::find(run.begin(), run.end(), "--max-batches") + 1) = "400";
  *(std::find(run.begin(), run.end(), "--barrier-every") + 1) = "5";
  const json whole = RunCentral(run);
  ASSERT_EQ(whole["precision"]["gates"]["turns"], 2);
  for (const char* lost : {"local-000", "local-001", "local-002"}) {
    const json summary = SummaryBehindALoss(run, lost, "training_change");
    EXPECT_EQ(summary["weights_sha256"], whole["weights_sha256"]) << lost;
    EXPECT_EQ(summary["precision"]["gates"]["layers"], whole["precision"]["gates"]["layers"]);
    EXPECT_EQ(summary["precision"]["gates"]["cost_targets"],
              whole["precision"]["gates"]["cost_targets"]);
  }
}

TEST(CostTarget, AsyncRunsThatTurnReplay) {
  ScratchDir dir;
  Words run =
      With(GatedRun(dir), {"--policy", "uniform", "--schedule", "async_1f1b", "--local-workers",
                           "3", "--recipe", "sbm:8,8,8", "--gates", "ff:0,3,8/6,6,8@beta:0.01",
                           "--cost-target", "0.5,4@1000,1,1", "--journal", dir / "j"});
  *(std::find(run.begin(), run.end(), "--max-batches") + 1) = "8";
  Process central(With({"runnel-central"}, With(run, {"--summary", dir / "s.json"})));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_EQ(Summary(dir / "s.json")["precision"]["gates"]["turns"], 1);
  const std::string replay = Replay(dir / "j");
  EXPECT_THAT(replay, HasSubstr("the same weights"));
  // Its totals are those of the run.
  const size_t at = replay.find("gates did ");
  ASSERT_NE(at, std::string::npos) << replay;
  const std::string totals = replay.substr(at, replay.find(" skipped", at) - at);
  EXPECT_THAT(central.out(), HasSubstr(totals));
}

// Any five losses stand still: the target turns at steps 5 and 10.
Words LstmRun(const ScratchDir& dir, const std::string& steps) {
  Words run = With(GatedRun(dir), {"--policy", "uniform", "--recipe", "sbm:8,8,8", "--gates",
                                   "lstm:0,3,8/6,6,8@beta:0.01"});
  *(std::find(run.begin(), run.end(), "--max-batches") + 1) = steps;
  return run;
}

// The second gate reads the first one's state over a cut.
TEST(GatesWithAnLstm, StagesHaveTheWeightsOfThePlainLoopAndResume) {
  ScratchDir dir;
  const Words sync = {"--schedule", "sync_1f1b", "--micro-batches", "2"};
  for (const Words& target : {Words{}, {"--cost-target", "0.5,2,4@1000,1,1"}}) {
    const Words flags = With(sync, target);
    Words whole = With(LstmRun(dir, "12"), flags);
    *(std::find(whole.begin(), whole.end(), "--eval-every") + 1) = "0";
    whole = With(whole, {"--eval-batch-size", "250"});
    const json plain = RunCentral(With(whole, {"--local-workers", "0"}));
    for (const char* workers : {"1", "2", "3"}) {
      const json cut = RunCentral(With(whole, {"--local-workers", workers}));
      EXPECT_EQ(cut["weights_sha256"], plain["weights_sha256"]) << workers << " stages";
      EXPECT_EQ(absl::StrCat(cut["plan"]["stages"].size()), workers);
      EXPECT_EQ(cut["accuracy"], plain["accuracy"]) << workers << " stages";
      EXPECT_EQ(cut["macs_done"], plain["macs_done"]);
    }
    ScratchDir begun;
    RunCentral(With(LstmRun(dir, "7"),
                    With(flags, {"--local-workers", "3", "--checkpoint-dir", begun / "c"})));
    const json resumed =
        RunCentral({"resume", "--checkpoint-dir", begun / "c", "--max-batches", "12"});
    EXPECT_EQ(resumed["weights_sha256"], plain["weights_sha256"]);
    EXPECT_NE(Weights(With(With(GatedRun(dir), flags),
                           {"--recipe", "sbm:8,8,8", "--gates", "ff:0,3,8/6,6,8@beta:0.01",
                            "--local-workers", "0"})),
              plain["weights_sha256"]);
  }
}

// The last tensor of a trained model stands in front of a state that nobody reads.
TEST(GatesWithAnLstm, PredictsByWhatItTrained) {
  ScratchDir dir;
  RunCentral(With(LstmRun(dir, "4"), {"--local-workers", "0", "--checkpoint-dir", dir / "c"}));
  Process predict(
      {"runnel-central", "predict", "--checkpoint-dir", dir / "c", "--out", dir / "p.csv"});
  EXPECT_EQ(predict.Wait(), 0) << predict.err();
  EXPECT_THAT(predict.out(), HasSubstr(" predictions"));
}

// Codecs write over the tensor and leave the state beside it, also those whose payloads vary.
TEST(GatesWithAnLstm, CodecsOfLinksLeaveTheState) {
  ScratchDir dir;
  for (const char* codec : {"mbq:4", "hadamard_ans:4"}) {
    SCOPED_TRACE(codec);
    const Words run = With(LstmRun(dir, "6"), {"--codec-forward", codec, "--codec-backward", codec,
                                               "--local-workers", "3", "--journal"});
    RunCentral(With(run, {absl::StrCat(dir / "j", codec)}));
    Replay(absl::StrCat(dir / "j", codec));
  }
}

// Layers by whose cut a state would be a tensor.
TEST(GatesWithAnLstm, StatesThatAreNoneAreRefused) {
  ScratchDir dir;
  const auto refused = [&dir](const std::string& layers, const std::string& message) {
    const std::string file = dir / "state.json";
    std::ofstream(file) << R"({"format": "runnel-model", "version": 1, "name": "state",
      "input": [1, 28, 28], "classes": 10, "layers": [)"
                        << layers << "]}";
    ExpectRefused({"train", "--model", "json:" + file, "--dataset", "synthetic_digits"}, message);
  };
  const std::string cell = R"({"op": "flatten"}, {"op": "linear", "out": 64}, {"op": "lstm_cell"})";
  const std::string carried = R"({"op": "carried_state"}, {"op": "linear", "out": 10})";
  refused(R"({"name": "one", "ops": [)" + cell + R"(, {"op": "linear", "out": 16}]},
            {"name": "two", "ops": [)" +
              carried + "]}",
          "layer two: no operator but carried_state reads the layer's input");
  refused(R"({"name": "one", "ops": [)" + cell + R"(]},
            {"name": "two", "ops": [{"op": "linear", "out": 10}]})",
          "layer one: ends with lstm_cell");
}

TEST(GatesWithAnLstm, AsyncRunsReplay) {
  ScratchDir dir;
  RunCentral(With(LstmRun(dir, "8"), {"--schedule", "async_1f1b", "--local-workers", "3",
                                      "--cost-target", "0.5,4@1000,1,1", "--journal", dir / "j"}));
  Process replay({"runnel-central", "replay", "--journal", dir / "j"});
  EXPECT_EQ(replay.Wait(), 0) << replay.err();
  EXPECT_THAT(replay.out(), HasSubstr("the same weights"));
}

TEST(GatesWithAnLstm, AWorkerThatIsLostChangesNothing) {
  ScratchDir dir;
  Words run =
      With(LstmRun(dir, "400"), {"--schedule", "sync_1f1b", "--micro-batches", "2", "--cost-target",
                                 "0.5,2,4@1000,1,5", "--local-workers", "3"});
  *(std::find(run.begin(), run.end(), "--barrier-every") + 1) = "5";
  const json whole = RunCentral(run);
  const std::string journal = dir / "j";
  Process central(
      With({"runnel-central"}, With(run, {"--journal", journal, "--summary", dir / "s.json"})));
  ASSERT_TRUE(WaitForRecords(journal, "training_change", 1)) << central.err();
  ASSERT_TRUE(KillWorker(central, "local-001"));
  EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
  const json summary = Summary(dir / "s.json");
  ASSERT_TRUE(summary.is_object()) << central.err();
  EXPECT_GE(summary["recoveries"].size(), 1u);
  EXPECT_EQ(summary["weights_sha256"], whole["weights_sha256"]);
}

TEST(CostTarget, WhatDoesNotFitIsOneLine) {
  ScratchDir dir;
  const Words sbm = With(GatedRun(dir), {"--recipe", "sbm:8,8,8"});
  const Words gated = With(sbm, {"--gates", "ff:3,8/6,8"});
  ExpectRefused(With(sbm, {"--cost-target", "2"}), "there are no gates that learn; add --gates");
  ExpectRefused(With(sbm, {"--gates", "ff:0,8/6,8@hold:0.5", "--cost-target", "2"}),
                "there are no gates that learn");
  ExpectRefused(With(gated, {"--cost-target", "1,2"}),
                "1 % is below the cheapest option of --gates, 1.465 %");
  ExpectRefused(With(gated, {"--cost-target", "2,7"}),
                "7 % is above the dearest option of --gates, 6.25 %");
  ExpectRefused(With(gated, {"--cost-target", "3,2"}), "targets do not rise from 3 to 2");
  ExpectRefused(With(gated, {"--cost-target", "two"}), "'two' is no percentage");
  Words every = With(gated, {"--cost-target", "2,3@,,15"});
  *(std::find(every.begin(), every.end(), "--barrier-every") + 1) = "10";
  ExpectRefused(every, "EVERY 15 is no multiple of --barrier-every 10; take 20");
  ExpectRefused(With(gated, {"--cost-target", "2,3@x,,"}), "--cost-target 2,3@x,,");
}

TEST(Gates, WhatDoesNotFitIsOneLine) {
  ScratchDir dir;
  const Words gated = GatedRun(dir);
  const auto refused = [&](const Words& words, const char* message) {
    ExpectRefused(With(gated, words), message);
  };
  const Words gates = {"--gates", "ff:0,32/32,32@hold:0.5"};
  ExpectRefused(With(kTrain, gates), "model lenet has no residual blocks; take one that has");
  refused({"--gates", "ff:0,32/32@hold:0.5"}, "give two lists of equal length");
  refused({"--gates", "ff:0,32/32,32@hold:2"}, "no @hold:SHARE with a share from 0 to 1");
  refused({"--gates", "lstm:32/32"}, "a gate that learns chooses among two options or more");
  refused({"--gates", "ff:0,4/4,4@hold:0.5"}, "fp32 has no grids; take --recipe sbm:8,8,16");
  refused({"--recipe", "sbm:8,8,8", "--gates", "ff:0,4,12/4,4,12@hold:0.5"},
          "option 12/12 of a gate: sbm has FW 2 to 8 and BW 2 to 16");
  refused(With(gates, {"--recipe", "bf16"}), "gates train with --recipe fp32 or sbm alone");
  refused(With(gates, {"--recompute", "1-2"}), "leave --recompute or gates out");
  refused(With(gates, {"--recipe", "sbm:8,8,8", "--precision", "fixed:8/8"}),
          "gates give each sample its bits, and what moves them is --cost-target (FracTrain); "
          "leave --precision or --gates out");
}

TEST(Recipes, ProgramsSayWhatTheyEmulate) {
  const auto program = [](const std::string& recipe) {
    Process worker({"runnel-worker", "program", "lenet", "--recipe", recipe, "--counted"});
    EXPECT_EQ(worker.Wait(), 0) << worker.err();
    return worker.out();
  };
  for (const std::string recipe : {"afp", "wageubn:16", "fp8_chunk:32"}) {
    EXPECT_THAT(program(recipe),
                HasSubstr("products: emulated (FP32 on values that " + recipe + " has rounded)"));
  }
  for (const std::string recipe : {"octo", "octo_lac", "sbm_range:8,8,8"})
    EXPECT_THAT(program(recipe), HasSubstr("products: of codes where they are int8 or int16"));
}

// Codes that a level gives more than 4 bits do not lie two a byte, in whoever's listing.
TEST(Recipes, ProgramsAreThoseOfTheLevels) {
  const Words worker = {"runnel-worker", "program", "lenet", "--recipe", "sbm:4,4,6", "--counted"};
  const Words central = {
      "runnel-central",  "plan", "--quick",   "--model", "lenet",    "--recipe", "sbm:4,4,6",
      "--local-workers", "2",    "--backend", "cpu",     "--program"};
  for (const Words& command : {worker, central}) {
    const auto listing = [&command](const char* precision) {
      Process process(With(command, {"--precision", precision}));
      EXPECT_EQ(process.Wait(), 0) << process.err();
      return process.out();
    };
    EXPECT_THAT(listing("recipe"), HasSubstr("pack_codes"));
    EXPECT_THAT(listing("fixed:3/6"), HasSubstr("pack_codes"));
    EXPECT_THAT(listing("fixed:8/8"), testing::Not(HasSubstr("pack_codes")));
  }
  Process wrong(With(worker, {"--precision", "fixed:8"}));
  EXPECT_EQ(wrong.Wait(), 2);
  EXPECT_THAT(wrong.err(), HasSubstr("--precision fixed:8: "));
}

TEST(Recipes, ProgramsWithGatesHaveProductsOfCodes) {
  const Words program = {"runnel-worker", "program",   "resnet8",      "--recipe",
                         "sbm:8,8,8",     "--counted", "--batch-size", "2"};
  Process gated(With(program, {"--gates", "ff:0,8/8,8@hold:0.5"}));
  EXPECT_EQ(gated.Wait(), 0) << gated.err();
  EXPECT_THAT(gated.out(), HasSubstr("products: of codes"));
  EXPECT_THAT(gated.out(), HasSubstr("hold_samples"));
  EXPECT_THAT(gated.out(), HasSubstr("codes_weight_gradient (int8)"));
  EXPECT_THAT(gated.out(), testing::Not(HasSubstr("gradient (emulated)")));
  Process wide(With(program, {"--gates", "ff:0,8/8,12@hold:0.5"}));
  EXPECT_EQ(wide.Wait(), 0) << wide.err();
  EXPECT_THAT(wide.out(), HasSubstr("codes_input_gradient (int16)"));
  Process wrong(With(program, {"--gates", "ff:0,8/8"}));
  EXPECT_NE(wrong.Wait(), 0);
  EXPECT_THAT(wrong.err(), HasSubstr("--gates ff:0,8/8: "));
  Process both(With(program, {"--gates", "ff:0,8/8,8", "--precision", "fixed:8/8"}));
  EXPECT_EQ(both.Wait(), 2);
  EXPECT_THAT(both.err(), HasSubstr("leave --precision or --gates out"));
  Process several(With(program, {"--gates", "ff:0,8/8,8", "--processors", "cpu,ref"}));
  EXPECT_NE(several.Wait(), 0);
  EXPECT_THAT(several.err(), HasSubstr("gates choose samples on one processor alone"));
}

TEST(Recipes, WhatDoesNotFitIsOneLine) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--recipe", "fp8_chunk:0"}, "recipe 'fp8_chunk:0' does not fit fp8_chunk:|1..4096|fp32"},
      {{"--recipe", "octo:8"}, "recipe 'octo:8': octo has no parameters"},
      {{"--recipe", "wageubn:12"}, "recipe 'wageubn:12' does not fit wageubn:|8|16"},
      {{"--recipe", "afp", "--recompute", "1-2"}, "leave --recompute out"},
      {{"--recipe", "afp", "--recompute", "auto"}, "have moved on"},
      {{"--recipe", "octo", "--precision", "fixed:8/8"},
       "recipe octo has fixed bits; take --recipe sbm"},
      {{"--recipe", "octo", "--loss-scale", "64"}, "recipe octo scales no loss"}};
  for (const auto& [words, message] : cases) ExpectRefused(With(kTrain, words), message);
}

TEST(Recipes, BackendsWithoutTheirGridsSayWho) {
  Process central({"runnel-central", "train", "--model", "lenet", "--dataset", "synthetic_digits",
                   "--recipe", "fp8_chunk", "--local-workers", "1", "--backend", "small"});
  EXPECT_EQ(central.Wait(), 2) << central.out();
  EXPECT_THAT(central.err(),  // the worker logs it too
              HasSubstr("backend small has no small_float (layer 0, op 0); take --backend cpu"));
}

TEST(Precision, AsyncRunsThatTurnResumeAndReplay) {
  ScratchDir dir;
  const Words journalled = With(kAsync, {"--journal", dir / "j"});
  const std::string whole = Weights(journalled);
  EXPECT_EQ(Records(dir / "j", "training_change"), 2);
  Replay(dir / "j");
  // Before the first turn, and between both.
  for (const char* steps : {"3", "7"}) {
    Words run = kAsync;
    *(std::find(run.begin(), run.end(), "--max-batches") + 1) = steps;
    const std::string folder = dir / steps;
    RunCentral(With(run, {"--checkpoint-dir", folder}));
    const json resumed = RunCentral({"resume", "--checkpoint-dir", folder, "--max-batches", "12"});
    EXPECT_EQ(resumed["weights_sha256"], whole) << steps;
    EXPECT_EQ(resumed["precision"]["turns"], 2);
  }
}

TEST(Precision, LevelsThatAreKnownBeforehandEqualThePlainLoop) {
  const Words sync = {"--schedule", "sync_1f1b", "--micro-batches", "2"};
  for (const char* precision : {"cpt:3,8/8", "at:0:3/6,1:8/8"}) {
    const Words run = With(With(kSbm, sync), {"--precision", precision});
    const std::string plain = Weights(With(run, {"--local-workers", "0"}));
    EXPECT_EQ(plain.size(), 64u);
    EXPECT_EQ(Weights(With(run, {"--local-workers", "3"})), plain) << precision;
  }
  const Words fixed = With(kTrain, {"--recipe", "sbm:4,3,6", "--precision", "fixed:8/8"});
  EXPECT_EQ(Weights(With(fixed, {"--local-workers", "2"})),
            Weights(With(kSbm, {"--local-workers", "2"})));
  const Words dorefa = With(kTrain, {"--local-workers", "2", "--recipe"});
  EXPECT_EQ(Weights(With(dorefa, {"dorefa:8,8,8", "--precision", "fixed:3/6"})),
            Weights(With(dorefa, {"dorefa:3,3,6"})));
}

TEST(Precision, WhatDoesNotFitIsOneLine) {
  const auto refused = [](const Words& words, const char* message) {
    ExpectRefused(With(kTrain, words), message);
  };
  refused({"--recipe", "sbm:8,8,8", "--precision", "pfq:3,4,6/6,6"},
          "has 3 FW and 2 BW; give as many of both");
  refused({"--recipe", "sbm:8,8,8", "--precision", "pfq:4,3/6,6"}, "bits fall from 4 to 3");
  refused({"--recipe", "dorefa:8,8,8", "--precision", "fixed:8/16"},
          "--precision fixed:8/16: recipe dorefa:8,8,8 has no BW of 16 bits; give 1 to 8");
  refused({"--recipe", "sbm:8,8,8", "--precision", "fixed:1/8"}, "no FW of 1 bits; give 2 to 8");
  refused({"--precision", "fixed:8/8"},
          "--precision fixed:8/8: recipe fp32 has no grids; take --recipe sbm:8,8,8");
  refused({"--recipe", "sbm:8,8,8", "--precision", "dfq:3,4/6,6"}, "rule 'dfq' is not known");
  Words sparse = With(kTrain, {"--recipe", "sbm:8,8,8", "--precision", "pfq:3,4/6,6@,,70"});
  *(std::find(sparse.begin(), sparse.end(), "--barrier-every") + 1) = "50";
  ExpectRefused(sparse, "EVERY 70 is no multiple of --barrier-every 50; take 100");
}

TEST(Precision, TurnsOfAFileOfLossesAreShown) {
  ScratchDir dir;
  std::ofstream(dir / "losses") << "2.0 1.5 1.2 1.1\n1.08 1.07 1.06\n1.06\n";
  Process shown({"runnel-central", "precision", "--losses", dir / "losses"});
  EXPECT_EQ(shown.Wait(), 0) << shown.err();
  EXPECT_THAT(shown.out(),
              HasSubstr("period 8: loss 1.06, scale 1.2588, moved 0.0318, limit 0.0500: turn to "
                        "4/6\n8 periods, 1 turns\n"));
  std::ofstream(dir / "words") << "2.0 two\n";
  ExpectRefused({"precision", "--losses", dir / "words"}, "'two' is no number");
  ExpectRefused({"precision", "--losses", dir / "losses", "--precision", "cpt:3,8/8"},
                "only pfq looks at losses");
}

}  // namespace
}  // namespace runnel::precision_test
