// Workers are killed while a run trains, with real processes: it goes on by itself and comes to the
// weights of a run that nothing happened to, or to those that its journal replays to.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/central/data/data_scratch.h"
#include "tests/process/central_runs.h"

namespace runnel::recovering_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A run that is evaluated at its end only, through nothing that has workers of its own.
// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--local-workers", "3",
                    "--eval-every", "-1", "--batch-size", "16", "--barrier-every", "10",
                    "--max-batches", "150"};
// clang-format on
const Words kDigits = {"--dataset", "synthetic_digits"};
const Words kSync = {"--schedule", "sync_1f1b", "--micro-batches", "4"};

// Runs while `kill` works, to a good end.
template <typename KillFn>
json RunAndKill(const Words& words, const std::string& journal, KillFn kill) {
  ScratchDir dir;
  Process central(With({"runnel-central"},
                       With(words, {"--journal", journal, "--summary", dir / "summary.json"})));
  kill(central);
  EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
  const json summary = Summary(dir / "summary.json");
  EXPECT_TRUE(summary.is_object()) << central.err();
  return summary.is_object() ? summary
                             : json{{"weights_sha256", ""}, {"recoveries", json::array()}};
}

// The kinds of runs whose weights do not depend on who trained what.
struct Kind {
  const char* name;
  Words words;
};

class Recovering : public ::testing::TestWithParam<Kind> {};

TEST_P(Recovering, EachWorkerInTurnAndTwoAtOnce) {
  const Words run = With(kRun, GetParam().words);
  const std::string whole = Weights(run);
  for (const Words& lost : std::vector<Words>{{"local-000"},
                                              {"local-001"},
                                              {"local-002"},
                                              {"local-001", "local-002"},
                                              {"local-000", "local-001", "local-002"}}) {
    ScratchDir dir;
    const std::string journal = dir / "j";
    const json summary = RunAndKill(run, journal, [&](const Process& central) {
      ASSERT_TRUE(WaitForRecords(journal, "barrier", 3)) << central.err();
      for (const std::string& name : lost) ASSERT_TRUE(KillWorker(central, name));
    });
    EXPECT_EQ(summary["weights_sha256"], whole) << lost.front() << " of " << lost.size();
    ASSERT_GE(summary["recoveries"].size(), 1u);
    EXPECT_GE(summary["recoveries"][0].value("step", -1), 10);
    EXPECT_GE(summary["recoveries"][0].value("first_gradient_s", -1.0), 0);
    EXPECT_EQ(Records(journal, "worker_lost"), static_cast<int>(lost.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Recovering,
    ::testing::Values(Kind{"sync", With(kSync, kDigits)},
                      Kind{"niti", With({"--recipe", "niti", "--schedule", "sync_1f1b"}, kDigits)}),
    [](const auto& info) { return std::string(info.param.name); });

// A run that learns nothing ends at its third evaluation, also where workers are lost on the way there.
TEST(RecoveringEarlyStop, AWorkerIsLostBeforeTheEvaluationThatEndsTheRun) {
  // Three barriers an epoch, an evaluation at the last one.
  const Words run =
      With(With(kDigits, kSync), {"--batch-size", "1000", "--barrier-every", "2", "--epochs", "9",
                                  "--lr", "1e-6", "--warm-up-steps", "0", "--early-stop", "2"});
  Words words = {"train", "--quick", "--model", "lenet", "--local-workers", "3"};
  words = With(words, run);
  const json whole = RunCentral(words);
  ASSERT_TRUE(whole.value("stopped_early", false));
  ASSERT_EQ(whole["evaluations"].size(), 3u);
  // The barrier of the third evaluation. The run goes on beside it, to the next one.
  const int last = whole["evaluations"].back().value("step", 0);
  ASSERT_EQ(whole["steps"], last + 2);
  ScratchDir dir;
  const std::string journal = dir / "j";
  const json summary = RunAndKill(words, journal, [&](const Process& central) {
    ASSERT_TRUE(WaitForRecords(journal, "barrier", last / 2 - 1)) << central.err();
    ASSERT_TRUE(KillWorker(central, "local-000"));
  });
  EXPECT_EQ(summary["weights_sha256"], whole["weights_sha256"]);
  EXPECT_EQ(summary["steps"], last + 2);
  EXPECT_TRUE(summary.value("stopped_early", false));
  EXPECT_EQ(summary["evaluations"].size(), 3u);
  EXPECT_GE(summary["recoveries"].size(), 1u);
  ExpectReplays(journal);
}

const Words kReplicates = {"--replicate-every", "1"};
const Words kKeepsNone = {"--replicate-every", "-1"};

// Over links so slow that a copy of the states is on its way nearly all the time.
TEST(RecoveringReplication, AWorkerIsLostWhileCopiesAreOnTheirWay) {
  Words run = With(With(kRun, kSync), With(kDigits, {"--link-mbps", "100"}));
  *(std::find(run.begin(), run.end(), "--max-batches") + 1) = "60";
  const std::string whole = Weights(With(run, kKeepsNone));
  for (const char* lost : {"local-000", "local-001", "local-002"}) {
    ScratchDir dir;
    const std::string journal = dir / "j";
    const json summary = RunAndKill(With(run, kReplicates), journal, [&](const Process& central) {
      ASSERT_TRUE(WaitForRecords(journal, "barrier", 3)) << central.err();
      ASSERT_TRUE(KillWorker(central, lost));
    });
    EXPECT_EQ(summary["weights_sha256"], whole) << lost;
    ExpectReplays(journal);
  }
}

// The workers' copies are enough: what is lost is what was trained since the last of them.
TEST(RecoveringReplication, TrainingGoesOnFromTheWorkersCopies) {
  const Words run = With(With(kRun, kSync), kDigits);
  const json undisturbed = RunCentral(With(run, kReplicates));
  EXPECT_GT(undisturbed["replication"].value("count", 0), 0);
  EXPECT_GT(undisturbed["replication"].value("bytes", 0), 0);
  EXPECT_GT(undisturbed["replication"].value("stall_s", 0.0), 0);
  EXPECT_EQ(Weights(With(run, kKeepsNone)), undisturbed["weights_sha256"]);
  // Whether central's state is later depends on how long states take here: of a few it is not.
  bool from_workers = false;
  for (int i = 0; i < 10 && !from_workers; ++i) {
    ScratchDir dir;
    const std::string journal = dir / "j";
    const json summary = RunAndKill(With(run, kReplicates), journal, [&](const Process& central) {
      ASSERT_TRUE(WaitForRecords(journal, "barrier", 4 + i)) << central.err();
      ASSERT_TRUE(KillWorker(central, "local-001"));
    });
    EXPECT_EQ(summary["weights_sha256"], undisturbed["weights_sha256"]);
    ASSERT_GE(summary["recoveries"].size(), 1u);
    from_workers = summary["recoveries"][0].value("source", "") == "workers";
  }
  EXPECT_TRUE(from_workers);
}

// The same on the real digits.
TEST(RecoveringMnist, AWorkerIsLost) {
  const std::string data = RealDataDir(RUNNEL_SOURCE_DIR);
  if (!std::filesystem::exists(data + "/mnist"))
    GTEST_SKIP() << "no MNIST in " << data << " (RUNNEL_DATA_DIR names another)";
  const Words run = With(With(kRun, kSync), {"--dataset", "mnist", "--data-dir", data});
  const std::string whole = Weights(run);
  ScratchDir dir;
  const std::string journal = dir / "j";
  const json summary = RunAndKill(run, journal, [&](const Process& central) {
    ASSERT_TRUE(WaitForRecords(journal, "barrier", 3)) << central.err();
    ASSERT_TRUE(KillWorker(central, "local-001"));
  });
  EXPECT_EQ(summary["weights_sha256"], whole);
}

// Stale weights and lossy codecs depend on the plan: the journal knows it.
TEST(RecoveringAsync, EqualsTheReplayOfItsJournal) {
  for (const char* lost : {"local-000", "local-002"}) {
    ScratchDir dir;
    const std::string journal = dir / "j";
    const json summary = RunAndKill(
        With(With(kRun, kDigits), {"--codec-forward", "mbq:2", "--codec-backward", "stochastic:8"}),
        journal, [&](const Process& central) {
          ASSERT_TRUE(WaitForRecords(journal, "barrier", 3)) << central.err();
          ASSERT_TRUE(KillWorker(central, lost));
        });
    EXPECT_EQ(summary["recoveries"].size(), 1u);
    ExpectReplays(journal);
  }
}

// What the lost worker kept of the samples is in the copies of its state; of the boundary that stays
// both ends go on from it, whoever they are now. Epochs of six steps.
TEST(RecoveringAsync, KeptSamplesAreRecovered) {
  const Words run = {"train",           "--quick", "--model",           "lenet",
                     "--local-workers", "3",       "--eval-every",      "-1",
                     "--batch-size",    "1000",    "--epochs",          "2",
                     "--barrier-every", "2",       "--replicate-every", "1",
                     "--codec-forward", "aqsgd:2", "--codec-backward",  "stochastic:8"};
  for (const char* lost : {"local-000", "local-001", "local-002"}) {
    ScratchDir dir;
    const std::string journal = dir / "j";
    const json summary = RunAndKill(With(run, kDigits), journal, [&](const Process& central) {
      ASSERT_TRUE(WaitForRecords(journal, "barrier", 4)) << central.err();
      ASSERT_TRUE(KillWorker(central, lost));
    });
    EXPECT_EQ(summary["recoveries"].size(), 1u) << lost;
    ExpectReplays(journal);
  }
}

// Those that live; between the last one's end and its next start there is none.
std::vector<pid_t> AwaitWorkers(const Process& central) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    std::vector<pid_t> workers = central.Children();
    // Who was killed before has no command line any more.
    std::erase_if(workers, [](pid_t pid) {
      return ReadFile(absl::StrCat("/proc/", pid, "/cmdline")).empty();
    });
    if (!workers.empty()) return workers;
    usleep(500);
  }
  return {};
}

// One after the other, whenever: the last one is started again and again.
TEST(RecoveringOften, RandomKillsOverARun) {
  const Words run = With(With(kRun, kSync), kDigits);
  const std::string whole = Weights(run);
  ScratchDir dir;
  const std::string journal = dir / "j";
  std::mt19937 random(7);
  const json summary = RunAndKill(run, journal, [&](const Process& central) {
    for (int lost = 0; lost < 6; ++lost) {
      ASSERT_TRUE(WaitForRecords(journal, "barrier", 1 + 2 * lost)) << central.err();
      const std::vector<pid_t> workers = AwaitWorkers(central);
      ASSERT_FALSE(workers.empty());
      const pid_t lost_worker = workers[random() % workers.size()];
      ASSERT_GT(lost_worker, 0);
      kill(lost_worker, SIGKILL);
      ASSERT_TRUE(WaitForRecords(journal, "worker_lost", lost + 1)) << central.err();
    }
  });
  EXPECT_EQ(summary["weights_sha256"], whole);
  EXPECT_GE(summary["recoveries"].size(), 3u);
  ExpectReplays(journal);
}

// Killed as soon as central has said that another one is lost.
TEST(RecoveringTwice, AWorkerIsLostInTheRecoveryOfAnother) {
  const Words run = With(With(kRun, kSync), kDigits);
  const std::string whole = Weights(run);
  for (const char* record : {"worker_lost", "recovered"}) {
    ScratchDir dir;
    const std::string journal = dir / "j";
    const json summary = RunAndKill(run, journal, [&](const Process& central) {
      ASSERT_TRUE(WaitForRecords(journal, "barrier", 3)) << central.err();
      ASSERT_TRUE(KillWorker(central, "local-002"));
      ASSERT_TRUE(WaitForRecords(journal, record, 1)) << central.err();
      ASSERT_TRUE(KillWorker(central, "local-001"));
    });
    EXPECT_EQ(summary["weights_sha256"], whole) << record;
    EXPECT_EQ(Records(journal, "worker_lost"), 2);
  }
}

// After it, and before its check-point.
TEST(RecoveringResume, ARunThatRecoveredResumesAndReplays) {
  const Words run = With(With(kRun, kSync), kDigits);
  const std::string whole = Weights(run);
  ScratchDir dir;
  const std::string journal = dir / "j";
  {
    Process central(
        With({"runnel-central"}, With(run, {"--journal", journal, "--checkpoint-dir", dir / "c"})));
    ASSERT_TRUE(WaitForRecords(journal, "checkpoint", 1)) << central.err();
    ASSERT_TRUE(KillWorker(central, "local-001"));
    ASSERT_TRUE(WaitForRecords(journal, "recovered", 1)) << central.err();
    const int written = Records(journal, "checkpoint");
    ASSERT_TRUE(WaitForRecords(journal, "checkpoint", written + 1)) << central.err();
    central.Signal(SIGKILL);
    central.Wait();
  }
  ScratchDir summaries;
  Process resume({"runnel-central", "resume", "--checkpoint-dir", dir / "c", "--summary",
                  summaries / "s.json"});
  ASSERT_TRUE(resume.WaitForOutput("resuming")) << resume.err();
  const int barriers = Records(journal, "barrier");
  ASSERT_TRUE(WaitForRecords(journal, "barrier", barriers + 2)) << resume.err();
  ASSERT_TRUE(KillWorker(resume, "local-002"));
  EXPECT_EQ(resume.Wait(), 0) << resume.err();
  EXPECT_EQ(Summary(summaries / "s.json")["weights_sha256"], whole);
  ExpectReplays(journal);
}

// The run goes on without a worker that dialled in, and takes it again when it is started again.
TEST(RecoveringDialled, TheRunGoesOnWithoutIt) {
  const Words all = With(With(kRun, kSync), kDigits);
  const std::string whole = Weights(all);
  Words run = all;
  const auto locals = std::find(run.begin(), run.end(), "--local-workers");
  run.erase(locals, locals + 2);
  ScratchDir dir;
  const std::string journal = dir / "j";
  Process central(With({"runnel-central"}, With(run, {"--workers", "2", "--journal", journal,
                                                      "--summary", dir / "s"})));
  const std::string address = WorkersAddress(central);
  Process one({"runnel-worker", "--once", "--central", address, "--name", "one"});
  Process two({"runnel-worker", "--once", "--central", address, "--name", "two"});
  ASSERT_TRUE(WaitForRecords(journal, "barrier", 3)) << central.err();
  one.Signal(SIGKILL);
  one.Wait();
  Process again({"runnel-worker", "--once", "--central", address, "--name", "one"});
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_EQ(again.Wait(), 0) << again.err();
  EXPECT_EQ(two.Wait(), 0) << two.err();
  EXPECT_EQ(Summary(dir / "s")["weights_sha256"], whole);
  EXPECT_THAT(central.out() + central.err(), HasSubstr("worker one was lost"));
  EXPECT_THAT(central.out(), HasSubstr("without one the run goes on from step"));
}

}  // namespace
}  // namespace runnel::recovering_test
