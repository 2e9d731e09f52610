// Whole runs with every optimizer and rate of the tables by the real binaries: the same bytes on
// one to three stages, over check-points, a lost worker and a replay.

#include "proto/base/training/optimizer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/training/rates/rate.h"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::optimizer_test {
namespace {

using nlohmann::json;

struct Row {
  std::string optimizer;
  std::string rate;
};

Words RunOf(const Row& row) {
  return {"train",
          "--quick",
          "--model",
          "lenet",
          "--dataset",
          "synthetic_digits",
          "--batch-size",
          "8",
          "--backend",
          "cpu",
          "--eval-every",
          "0",
          "--eval-batch-size",
          "250",
          "--barrier-every",
          "10",
          "--warm-up-steps",
          "4",
          "--optimizer",
          row.optimizer,
          "--rate",
          row.rate};
}

class OptimizerRuns : public ::testing::TestWithParam<Row> {};

TEST_P(OptimizerRuns, GiveTheSameBytesOnOneToThreeStages) {
  const Words sync = {"--schedule",    "sync_1f1b", "--micro-batches", "4",
                      "--max-batches", "12",        "--clip-norm",     "0.5"};
  const Words run = With(RunOf(GetParam()), sync);
  const std::string plain = Weights(With(run, {"--local-workers", "0"}));
  EXPECT_EQ(plain.size(), 64u);
  for (const char* workers : {"1", "2", "3"})
    EXPECT_EQ(Weights(With(run, {"--local-workers", workers})), plain) << workers << " stages";
  const Words other = With(RunOf({"sgd", "constant"}), sync);
  EXPECT_NE(Weights(With(other, {"--local-workers", "0"})), plain);
}

// With one micro-batch a step a stage could step within the backward, before the norm is known.
TEST(Clipping, HoldsWithOneMicroBatchAStep) {
  const Words run = With(RunOf({"sgd", "constant"}), {"--schedule", "sync_1f1b", "--micro-batches",
                                                      "1", "--max-batches", "12"});
  const std::string free = Weights(With(run, {"--local-workers", "1"}));
  for (const char* workers : {"0", "1", "2"}) {
    const Words clipped = With(run, {"--local-workers", workers, "--clip-norm"});
    EXPECT_NE(Weights(With(clipped, {"0.01"})), free) << workers << " stages";
    EXPECT_EQ(Weights(With(clipped, {"1000000"})), free) << workers << " stages";
  }
}

TEST_P(OptimizerRuns, ResumeOnOtherStagesRecoverAndReplay) {
  ScratchDir dir;
  const Words run = With(RunOf(GetParam()),
                         {"--schedule", "sync_1f1b", "--micro-batches", "2", "--clip-norm", "0.5"});
  const Words on_three = With(run, {"--local-workers", "3"});
  const std::string whole = Weights(With(on_three, {"--max-batches", "100"}));
  RunCentral(With(on_three, {"--max-batches", "20", "--checkpoint-dir", dir / "c"}));
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "100",
                     "--local-workers", "2"}),
            whole);

  const std::string journal = dir / "j";
  Process central(With({"runnel-central"}, With(on_three, {"--max-batches", "100", "--journal",
                                                           journal, "--summary", dir / "s"})));
  ASSERT_TRUE(WaitForRecords(journal, "barrier", 2)) << central.err();
  ASSERT_TRUE(KillWorker(central, "local-001"));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  const json summary = Summary(dir / "s");
  EXPECT_EQ(summary["weights_sha256"], whole);
  EXPECT_GT(summary["clipped_steps"], 0);
  EXPECT_EQ(Records(journal, "worker_lost"), 1);
  ExpectReplays(journal);
}

// Staleness: look-ahead goes where the optimizer's state leads.
TEST_P(OptimizerRuns, LookAheadIsReplayed) {
  ScratchDir dir;
  const Words run = With(RunOf(GetParam()), {"--local-workers", "3", "--max-batches", "20"});
  const std::string ahead = Weights(With(run, {"--look-ahead", "0.5", "--journal", dir / "j"}));
  Replay(dir / "j");
  EXPECT_NE(Weights(With(run, {"--look-ahead", "0"})), ahead);
}

// Each row of both tables once, but for the defaults and the constant rate.
std::vector<Row> Rows() {
  const auto optimizers = Optimizers().subspan(1);
  const auto rates = Rates().subspan(2);
  std::vector<Row> rows;
  for (size_t i = 0; i < std::max(optimizers.size(), rates.size()); ++i) {
    rows.push_back({std::string(optimizers[i % optimizers.size()].choice.name),
                    std::string(rates[i % rates.size()].choice.name)});
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Tables, OptimizerRuns, ::testing::ValuesIn(Rows()), [](const auto& info) {
  return absl::StrCat(info.param.optimizer, "_", info.param.rate);
});

}  // namespace
}  // namespace runnel::optimizer_test
