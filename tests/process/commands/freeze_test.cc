// --rewrite freeze:LAYERS by the real binaries: the same weights on any number of stages, over kills
// and resumes; frozen layers keep theirs, and no gradient crosses the links behind them.

#include <signal.h>

#include "central/records/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/process/central_runs.h"

namespace runnel::freeze_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// clang-format off
const Words kLenet = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits",
                      "--eval-every", "-1", "--batch-size", "16", "--barrier-every", "10"};
const Words kRun = With(kLenet, {"--schedule", "sync_1f1b", "--micro-batches", "4"});
// clang-format on
// Three stages of two layers each.
const Words kTwo = With(kRun, {"--rewrite", "freeze:2"});
const Words kThreeStages = {"--local-workers", "3"};

TEST(Freeze, OneToThreeStagesAreThePlainLoop) {
  for (const Words& flags : std::vector<Words>{
           {"--rewrite", "freeze:2", "--recipe", "fp32"},
           {"--rewrite", "freeze:0-3", "--recipe", "fp32"},
           {"--rewrite", "freeze:1-2", "--recipe", "fp32"},  // gradients pass
           {"--rewrite", "freeze:3", "--recipe", "niti", "--rescale", "adaptive:4"},
           {"--rewrite", "freeze:2", "--recipe", "niti", "--backend", "ref"},
       }) {
    const Words run = With(With(kRun, {"--max-batches", "6"}), flags);
    const std::string plain = Weights(With(run, {"--local-workers", "0"}));
    for (const char* workers : {"1", "2", "3"})
      EXPECT_EQ(Weights(With(run, {"--local-workers", workers})), plain)
          << flags[1] << ", " << flags[3] << ", " << workers << " stages";
    EXPECT_NE(Weights(With(kRun, {"--max-batches", "6", "--recipe", flags[3]})), plain);
  }
}

TEST(Freeze, NoGradientCrossesALinkBehindFrozenLayers) {
  const Words run = With(With(kRun, kThreeStages), {"--max-batches", "20"});
  const json two = RunCentral(With(run, {"--rewrite", "freeze:2"}));
  EXPECT_EQ(two["links"][0]["bytes_backward"], 0);
  EXPECT_GT(two["links"][0]["bytes_forward"], 0);
  EXPECT_GT(two["links"][1]["bytes_backward"], 0);
  const json four = RunCentral(With(run, {"--rewrite", "freeze:4"}));
  for (const json& link : four["links"]) {
    EXPECT_EQ(link["bytes_backward"], 0);
    // One frame a micro-batch, and that down.
    EXPECT_EQ(link["frames"], 80);
  }
}

TEST(Freeze, AsyncAndLossyCodecsAreAFunctionOfThePlan) {
  Words run = With(kLenet, {"--rewrite", "freeze:2", "--local-workers", "3", "--max-batches", "25",
                            "--schedule", "async_1f1b", "--micro-batches", "1"});
  EXPECT_EQ(Weights(run), Weights(With(run, {"--link-delay-ms", "3"})));
  run = With(run, {"--codec-forward", "mbq:4", "--codec-backward", "stochastic:8"});
  EXPECT_EQ(Weights(run), Weights(With(run, {"--link-delay-ms", "3"})));
}

TEST(Freeze, FrozenLayersEndAsTheyBegan) {
  ScratchDir dir;
  RunCentral(With(With(kTwo, kThreeStages),
                  {"--max-batches", "20", "--seed", "5", "--checkpoint-dir", dir / "c"}));
  const auto checkpoint = ReadLatestCheckpoint(dir / "c");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const ModelState initial = *InitialState(*MakeModel("lenet"), 5);
  for (size_t layer = 0; layer < initial.layers.size(); ++layer) {
    const LayerState& now = checkpoint->checkpoint.state.layers[layer];
    const bool has_state = !initial.layers[layer].tensors.empty();
    EXPECT_EQ(now.tensors == initial.layers[layer].tensors, layer < 2 || !has_state) << layer;
    EXPECT_EQ(now.slots.empty(), layer < 2 || !has_state) << layer;
  }
}

TEST(Freeze, LostWorkersAndALostCentralChangeNothing) {
  const Words run = With(With(kTwo, kThreeStages), {"--max-batches", "150"});
  const std::string whole = Weights(run);
  for (const char* lost : {"local-000", "local-002"})
    EXPECT_EQ(SummaryBehindALoss(run, lost, "barrier", 3)["weights_sha256"], whole) << lost;
  ScratchDir dir;
  Process central(
      With({"runnel-central"}, With(run, {"--journal", dir / "j", "--checkpoint-dir", dir / "c"})));
  ASSERT_TRUE(WaitForRecords(dir / "j", "checkpoint", 2)) << central.err();
  central.Signal(SIGKILL);
  central.Wait();
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c"}), whole);
  Replay(dir / "j");
}

TEST(Freeze, BadInputIsOneLine) {
  const auto refused = [](const std::string& rewrite, const std::string& words) {
    Process central({"runnel-central", "train", "--quick", "--rewrite", rewrite});
    EXPECT_EQ(central.Wait(30), 2) << central.out();
    const std::string err = central.err();
    EXPECT_THAT(err, HasSubstr("--rewrite " + rewrite + ": "));
    EXPECT_THAT(err, HasSubstr(words));
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  };
  refused("melt:3", "there are freeze:LAYERS");
  refused("freeze:9", "layer 8 is beyond the model");
  refused("freeze:6", "all 6 layers of lenet would be frozen");
  refused("freeze:4-5", "makes the loss");
  refused("freeze:x", "no range such as 0-5");
}

}  // namespace
}  // namespace runnel::freeze_test
