// Recipe bf16 in real processes: the same weights wherever a stage is cut and whatever computes it,
// and half of the bytes on exact links. `runnel-worker numbers`.

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// clang-format off
const Words kRun = {"train", "--recipe", "bf16", "--model", "lenet", "--dataset", "synthetic_digits",
                    "--batch-size", "8", "--eval-every", "-1",
                    "--schedule", "sync_1f1b", "--micro-batches", "2"};
// clang-format on
const Words kSixSteps = With(kRun, {"--max-batches", "6"});

TEST(Bf16, HasTheSameWeightsOnAllProcessorsAndStages) {
  const std::string want = Weights(With(kSixSteps, {"--local-workers", "0", "--backend", "ref"}));
  EXPECT_EQ(want.size(), 64);
  for (const char* backend : {"cpu", "cpu:portable", "ref"}) {
    EXPECT_EQ(Weights(With(kSixSteps, {"--local-workers", "3", "--backend", backend})), want)
        << backend;
    EXPECT_EQ(Weights(With(kSixSteps, {"--local-workers", "0", "--backend", backend})), want)
        << backend;
  }
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
  EXPECT_THAT(central.err(), HasSubstr("recipe bf16: backend hexagon does not compute in bf16"));
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
}  // namespace runnel
