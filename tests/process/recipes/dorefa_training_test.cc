// Whole runs of a fake-quantising recipe by the real binaries: the same bytes on one to three
// stages and as the plain loop, over check-points and replays.

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::dorefa_training_test {
namespace {

using nlohmann::json;
using ::testing::Contains;

// clang-format off
const Words kDorefa = {"train", "--model", "lenet", "--dataset", "synthetic_digits",
                       "--recipe", "dorefa:4,4,8", "--batch-size", "8",
                       "--eval-every", "0", "--eval-batch-size", "250"};
// clang-format on
const Words kOnCpu = With(kDorefa, {"--backend", "cpu"});
const Words kAsync = With(kOnCpu, {"--local-workers", "3", "--barrier-every", "4"});

TEST(DorefaTraining, SyncEqualsThePlainLoopOnOneToThreeStages) {
  for (const char* micro_batches : {"1", "4"}) {
    const Words steps = With(kOnCpu, {"--max-batches", "3", "--micro-batches", micro_batches});
    const Words sync = With(steps, {"--schedule", "sync_1f1b"});
    const std::string plain = Weights(With(sync, {"--local-workers", "0"}));
    EXPECT_EQ(plain.size(), 64u);
    for (const char* workers : {"1", "2", "3"}) {
      EXPECT_EQ(Weights(With(sync, {"--local-workers", workers})), plain)
          << workers << " stages, M = " << micro_batches;
    }
    EXPECT_EQ(Weights(With(steps, {"--local-workers", "3", "--schedule", "zb_h1"})), plain)
        << "weight-gradients deferred, M = " << micro_batches;
  }
}

TEST(DorefaTraining, OpenClGivesTheSameBytesOnOneAndTwoStages) {
  if (!testing::Matches(Contains("opencl"))(BackendNames())) GTEST_SKIP() << "no OpenCL driver";
  const Words steps = With(kDorefa, {"--backend", "opencl", "--max-batches", "3", "--micro-batches",
                                     "2", "--schedule", "sync_1f1b"});
  const std::string plain = Weights(With(steps, {"--local-workers", "0"}));
  EXPECT_EQ(plain.size(), 64u);
  EXPECT_EQ(Weights(With(steps, {"--local-workers", "2"})), plain);
}

TEST(DorefaTraining, RunsResumeReplayAndKeepTheirName) {
  ScratchDir dir;
  const std::string whole = Weights(With(kAsync, {"--max-batches", "12"}));
  const json half = RunCentral(With(kAsync, {"--max-batches", "4", "--checkpoint-dir", dir / "c"}));
  EXPECT_EQ(half["recipe"], "dorefa:4,4,8");
  EXPECT_NE(half["weights_sha256"], whole);
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "12"}), whole);
  EXPECT_EQ(Weights(With(kAsync, {"--max-batches", "12", "--journal", dir / "j"})), whole);
  ExpectReplays(dir / "j");
}

TEST(DorefaTraining, AFileMaySayTheRecipe) {
  ScratchDir dir;
  std::ofstream(dir / "c") << "recipe=dorefa:1,2,6\nbatch-size=8\n";
  const json summary = RunCentral({"train", "--config", dir / "c", "--backend", "cpu",
                                   "--max-batches", "2", "--eval-every", "0"});
  EXPECT_EQ(summary["recipe"], "dorefa:1,2,6");
}

}  // namespace
}  // namespace runnel::dorefa_training_test
