// Recipes bf16 and fp16 in real processes: the same weights wherever a stage is cut and whatever computes it,
// and half of the bytes on exact links. `runnel-worker numbers`.

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::halves_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// clang-format off
const Words kTrain = {"train", "--model", "lenet", "--dataset", "synthetic_digits",
                      "--batch-size", "8", "--eval-every", "-1",
                      "--schedule", "sync_1f1b", "--micro-batches", "2"};
// clang-format on
const Words kRun = With(kTrain, {"--recipe", "bf16"});
const Words kSixSteps = With(kRun, {"--max-batches", "6"});

TEST(Halves, HaveTheSameWeightsOnAllProcessorsAndStages) {
  for (const char* recipe : {"bf16", "fp16"}) {
    const Words six = With(kTrain, {"--recipe", recipe, "--max-batches", "6"});
    const std::string want = Weights(With(six, {"--local-workers", "0", "--backend", "ref"}));
    EXPECT_EQ(want.size(), 64);
    for (const char* backend : {"cpu", "cpu:portable", "small", "ref"}) {
      for (const char* workers : {"3", "0"}) {
        EXPECT_EQ(Weights(With(six, {"--local-workers", workers, "--backend", backend})), want)
            << recipe << ", " << backend << ", " << workers;
      }
    }
  }
}

// Twenty barriers without a saturated gradient double the scale: six of them before the run is
// resumed, on one stage.
TEST(Fp16, GoesOnFromACheckpointOverAChangeOfTheScale) {
  ScratchDir dir;
  const Words run = With(kTrain, {"--recipe", "fp16", "--barrier-every", "1"});
  const json whole = RunCentral(
      With(run, {"--local-workers", "3", "--max-batches", "23", "--journal", dir / "j"}));
  EXPECT_EQ(whole["loss_scale"], 2048);
  EXPECT_GT(whole["gradient_values"], 0);
  EXPECT_FALSE(whole.contains("gradients_saturated")) << "none are";
  RunCentral(
      With(run, {"--local-workers", "2", "--max-batches", "6", "--checkpoint-dir", dir / "c"}));
  const json resumed = RunCentral({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "23"});
  EXPECT_EQ(resumed["weights_sha256"], whole["weights_sha256"]);
  EXPECT_EQ(resumed["loss_scale"], 2048);
  const json still = RunCentral(
      With(run, {"--local-workers", "0", "--max-batches", "23", "--loss-scale", "1024"}));
  EXPECT_EQ(still["loss_scale"], 1024);
  Replay(dir / "j");
}

// Beyond the range they are held at its end.
TEST(Fp16, CountsGradientsThatDoNotFit) {
  const Words run = With(kTrain, {"--recipe", "fp16", "--local-workers", "2", "--max-batches", "4",
                                  "--barrier-every", "1"});
  const json held = RunCentral(With(run, {"--loss-scale", "16777216"}));
  EXPECT_GT(held["gradients_saturated"], 0);
  const json small = RunCentral(With(run, {"--loss-scale", "1"}));
  EXPECT_GT(small["gradient_underflows"], 0);
}

// A step of a million times the weights.
TEST(Fp16, WeightsBeyondItsRangeAreOneLine) {
  ScratchDir dir;
  RunCentral(With(kTrain, {"--local-workers", "1", "--max-batches", "1", "--lr", "1000",
                           "--weight-decay", "1000", "--checkpoint-dir", dir / "c"}));
  ExpectRefused(With(kTrain, {"--recipe", "fp16", "--init-from", dir / "c"}),
                ", recipe fp16 holds up to 65504; take --recipe fp32");
}

TEST(Fp16, ALossScaleThatDoesNotFitIsOneLine) {
  ExpectRefused(With(kTrain, {"--recipe", "fp16", "--loss-scale", "1000"}),
                "--loss-scale 1000: '1000' is no power of two from 1 to 16777216, nor auto");
  ExpectRefused(With(kRun, {"--loss-scale", "1024"}),
                "--loss-scale 1024: recipe bf16 scales no loss; take --recipe fp16");
}

TEST(Bf16, GoesOnFromACheckpoint) {
  ScratchDir dir;
  const Words words = With(kRun, {"--local-workers", "2", "--barrier-every", "3"});
  const std::string want = Weights(With(words, {"--max-batches", "6"}));
  RunCentral(With(words, {"--max-batches", "3", "--checkpoint-dir", dir / "c"}));
  const json resumed = RunCentral({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "6"});
  EXPECT_EQ(resumed["weights_sha256"], want);
}

TEST(Bf16, IsRefusedWhereItIsNotComputed) {
  Process central(
      With({"runnel-central"}, With(kSixSteps, {"--local-workers", "0", "--backend", "hexagon"})));
  EXPECT_EQ(central.Wait(), 2) << central.out();
  EXPECT_THAT(central.err(),
              HasSubstr("--backend hexagon: it trains integers alone, recipe bf16 has floats"));
}

void ExpectNumbers(const Words& words, const std::string& input, int code, const std::string& out,
                   const std::string& err) {
  ScratchDir dir;
  std::ofstream(dir / "in") << input;
  const std::string path = dir / "in";
  Process numbers(With({"runnel-worker", "numbers"}, words), [&path] {
    const int file = open(path.c_str(), O_RDONLY);
    dup2(file, STDIN_FILENO);
  });
  EXPECT_EQ(numbers.Wait(), code);
  EXPECT_EQ(numbers.out(), out);
  EXPECT_THAT(numbers.err(), HasSubstr(err));
}

TEST(Numbers, AreEncodedAndDecoded) {
  ExpectNumbers({"bf16"}, "1 3.14159\n-0.1\n", 0,
                "1 3f80 1\n3.14159 4049 3.140625\n-0.1 bdcd -0.100097656\n", "");
  ExpectNumbers({"e4m3"}, "1e9\n0.001\n", 0, "1e9 7e 448\n0.001 01 0.001953125\n", "");
  ExpectNumbers({"f16"}, "65519 65520\n", 0, "65519 7bff 65504\n65520 7c00 inf\n", "");
  ExpectNumbers({"bf17"}, "", 2, "", "numbers bf17: take one of f32, f16, bf16, e4m3, e5m2");
  ExpectNumbers({"bf16"}, "1\ntwo\n", 2, "1 3f80 1\n", "line 2: 'two' is no number");
}

}  // namespace
}  // namespace runnel::halves_test
