// `train --seeds`: the same run with several seeds, and what they came to together.

#include <cmath>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::seeds_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const Words kRun = {"train",         "--quick", "--local-workers",   "0",
                    "--max-batches", "6",       "--eval-batch-size", "250"};

TEST(Seeds, EachRunIsThatOfItsSeedAndTheirMeanIsGiven) {
  ScratchDir dir;
  RunCentral(
      With(kRun, {"--seeds", "1,7", "--checkpoint-dir", dir / "c", "--tensorboard", dir / "tb"}));
  const std::string summary = dir / "all.json";
  Process central(With({"runnel-central"}, With(kRun, {"--seeds", "3,4,5", "--summary", summary,
                                                       "--log", dir / "l.csv"})));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  const json all = Summary(summary);
  ASSERT_EQ(all["runs"].size(), 3u);
  double mean = 0, squares = 0;
  for (const json& run : all["runs"]) mean += run["accuracy"].get<double>() / 3;
  for (const json& run : all["runs"]) squares += std::pow(run["accuracy"].get<double>() - mean, 2);
  EXPECT_NEAR(all["accuracy"]["mean"], mean, 1e-12);
  EXPECT_NEAR(all["accuracy"]["deviation"], std::sqrt(squares / 2), 1e-12);
  EXPECT_EQ(all["runs"][1]["seed"], 4);
  EXPECT_EQ(all["runs"][1]["weights_sha256"], Weights(With(kRun, {"--seed", "4"})));
  EXPECT_EQ(Summary(dir / "all.seed-4.json")["weights_sha256"], all["runs"][1]["weights_sha256"]);
  EXPECT_THAT(central.out(), HasSubstr("accuracy over 3 seeds (3, 4, 5): mean "));
  for (const char* path : {"l.seed-3.csv", "l.seed-5.csv", "c/seed-1", "c/seed-7", "tb/seed-7"})
    EXPECT_TRUE(std::filesystem::exists(dir / path)) << path;
}

TEST(Seeds, AWrongListIsOneLine) {
  ExpectRefused(With(kRun, {"--seeds", "1,x"}), "--seeds 1,x: must be integers of at least 0");
  ExpectRefused(With(kRun, {"--seeds", "1,1"}), "--seeds 1,1: has a seed twice");
  ExpectRefused(With(kRun, {"--seeds", "1,2", "--seed", "3"}), "--seeds and --seed: give one");
}

}  // namespace
}  // namespace runnel::seeds_test
