// Workers and central that are away for a while, with real processes: stopped, cut off, dead. Who
// comes back in time is waited for, and the weights are those of a run that nothing happened to.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/process/central_runs.h"
#include "tests/transport/tcp_proxy.h"

namespace runnel::staying_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits",
                    "--eval-every", "-1", "--batch-size", "16", "--barrier-every", "10",
                    "--max-batches", "150", "--schedule", "sync_1f1b", "--micro-batches", "4"};
// clang-format on

const std::string& UndisturbedWeights() {
  static const std::string weights = Weights(With(kRun, {"--local-workers", "3"}));
  return weights;
}

// What happens takes so long in real life; nothing is asserted of it.
void LetPass(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) usleep(10'000);
}

// A run of three workers of this host.
class Staying : public ::testing::Test {
 protected:
  void Start(const Words& more) {
    central_.emplace(With(With({"runnel-central"}, kRun),
                          With(more, {"--journal", journal_, "--summary", dir_ / "summary.json"})));
    ASSERT_TRUE(central_.has_value());
  }
  void StartLocal() {
    Start({"--local-workers", "3"});
    ASSERT_TRUE(WaitForRecords(journal_, "barrier", 3)) << central_->err();
  }
  // The run ends well, with the right weights. How many recoveries it took.
  size_t Finish() {
    EXPECT_EQ(central_->Wait(), 0) << central_->out() << central_->err();
    const json summary = Summary(dir_ / "summary.json");
    if (!summary.is_object()) return 999;
    EXPECT_EQ(summary["weights_sha256"], UndisturbedWeights());
    for (const json& recovery : summary["recoveries"]) {
      std::printf("found out after %.3f s, first gradient %.3f s\n",
                  recovery.value("detect_s", -1.0), recovery.value("first_gradient_s", -1.0));
    }
    return summary["recoveries"].size();
  }
  std::string log() const { return central_->out() + central_->err(); }

  ScratchDir dir_;
  const std::string journal_ = dir_ / "j";
  std::optional<Process> central_;
};

TEST_F(Staying, AWorkerThatIsStoppedForThreeSecondsIsSlow) {
  StartLocal();
  const std::optional<pid_t> worker = WorkerNamed(*central_, "local-001");
  ASSERT_TRUE(worker.has_value());
  kill(*worker, SIGSTOP);
  LetPass(std::chrono::milliseconds(3'000));
  kill(*worker, SIGCONT);
  EXPECT_EQ(Finish(), 0u) << log();
  EXPECT_THAT(log(), HasSubstr("local-001 was slow"));
}

// It is taken for lost, comes back, and disturbs nothing.
TEST_F(Staying, AWorkerThatIsStoppedForGoodIsLost) {
  StartLocal();
  const std::optional<pid_t> worker = WorkerNamed(*central_, "local-001");
  ASSERT_TRUE(worker.has_value());
  kill(*worker, SIGSTOP);
  ASSERT_TRUE(WaitForRecords(journal_, "worker_lost", 1)) << log();
  kill(*worker, SIGCONT);
  EXPECT_EQ(Finish(), 1u) << log();
  EXPECT_THAT(log(), HasSubstr("local-001 was lost: stopped: "));
}

TEST_F(Staying, AWorkerThatDiesIsLostAtOnce) {
  StartLocal();
  ASSERT_TRUE(KillWorker(*central_, "local-001"));
  EXPECT_EQ(Finish(), 1u) << log();
  EXPECT_THAT(log(), HasSubstr("local-001 was lost: dead: "));
}

TEST_F(Staying, ACentralThatIsStoppedLosesNobody) {
  for (const int ms : {3'000, 10'000}) {
    std::filesystem::remove(journal_);
    StartLocal();
    kill(central_->pid(), SIGSTOP);
    LetPass(std::chrono::milliseconds(ms));
    kill(central_->pid(), SIGCONT);
    EXPECT_EQ(Finish(), 0u) << ms << log();
    EXPECT_THAT(log(), Not(HasSubstr("was lost")));
  }
}

// A radio changes its access point: the control connections of both workers are cut for three
// seconds.
TEST_F(Staying, ACutControlConnectionCostsNothing) {
  Start({"--workers", "2", "--insecure-network"});
  TcpProxy way(WorkersAddress(*central_));
  std::vector<std::unique_ptr<Process>> workers;
  for (const char* name : {"one", "two"}) {
    workers.push_back(std::make_unique<Process>(
        Words{"runnel-worker", "--central", way.address(), "--name", name, "--insecure-network"}));
  }
  ASSERT_TRUE(WaitForRecords(journal_, "barrier", 3)) << log();
  const int taken = way.taken();
  way.Set(TcpProxy::Mode::kReset);
  LetPass(std::chrono::milliseconds(3'000));
  way.Set(TcpProxy::Mode::kPass);
  EXPECT_EQ(Finish(), 0u) << log();
  EXPECT_GT(way.taken(), taken);
  EXPECT_THAT(log(), HasSubstr("worker one is connected again"));
  EXPECT_THAT(log(), HasSubstr("worker two is connected again"));
}

}  // namespace
}  // namespace runnel::staying_test
