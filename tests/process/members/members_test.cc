// Workers come and go, with real processes and signals, while a run trains.

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <set>

#include "gmock/gmock.h"
#include "tests/process/central_runs.h"

namespace runnel::members_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits",
                    "--eval-every", "-1", "--batch-size", "16", "--barrier-every", "20",
                    "--schedule", "sync_1f1b", "--micro-batches", "4", "--max-batches", "400"};
// clang-format on

// A run of central's worker and two that dial in.
class RunOfThree {
 public:
  RunOfThree()
      : central_(With({"runnel-central"}, With(kRun, {"--workers", "2", "--journal", journal(),
                                                      "--summary", dir_ / "s"}))) {
    address_ = WorkersAddress(central_);
  }
  std::string journal() const { return dir_ / "j"; }
  const std::string& address() const { return address_; }
  Process& central() { return central_; }
  Words Worker(const std::string& name) const {
    return {"runnel-worker", "--central", address_, "--name", name, "--state-dir", dir_ / "state"};
  }
  bool Trains() { return WaitForRecords(journal(), "barrier", 3); }
  // What central says of an order, which finds it by itself.
  Process Order(const Words& words) const { return Process(With({"runnel-central"}, words)); }
  json End() {
    EXPECT_EQ(central_.Wait(), 0) << central_.out() << central_.err();
    Replay(journal());
    return Summary(dir_ / "s");
  }

 private:
  ScratchDir dir_;
  // Centrals of other tests are not found there.
  const bool is_alone_ = setenv("RUNNEL_RUNTIME_DIR", (dir_ / "run").c_str(), 1) == 0;
  Process central_;
  std::string address_;
};

const std::string& WholeWeights() {
  static const std::string weights = Weights(With(kRun, {"--local-workers", "3"}));
  return weights;
}

TEST(Members, OneThatIsStartedAgainTakesItsSeat) {
  RunOfThree run;
  std::optional<Process> one(std::in_place, run.Worker("one"));
  Process two(run.Worker("two"));
  ASSERT_TRUE(run.Trains()) << run.central().err();
  one->Signal(SIGKILL);
  one->Wait();
  ASSERT_TRUE(WaitForRecords(run.journal(), "recovered", 1)) << run.central().err();
  const int plans = Records(run.journal(), "plan");
  const auto began = std::chrono::steady_clock::now();
  one.emplace(run.Worker("one"));
  ASSERT_TRUE(run.central().WaitForOutput("worker one takes part again")) << run.central().err();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("known to central %.2f s after its start\n", seconds);
  RecordProperty("rejoin_ms", static_cast<int>(seconds * 1e3));
  EXPECT_TRUE(WaitForRecords(run.journal(), "plan", plans + 1)) << "it has no stage again";
  const json summary = run.End();
  EXPECT_EQ(summary["weights_sha256"], WholeWeights());
  EXPECT_EQ(summary["recoveries"].size(), 1u);
  EXPECT_EQ(summary["plan"]["stages"].size(), 3u);
}

TEST(Members, OneThatIsToldToEndLeavesNothingToTrainAgain) {
  RunOfThree run;
  Process one(run.Worker("one"));
  Process two(run.Worker("two"));
  ASSERT_TRUE(run.Trains()) << run.central().err();
  two.Signal(SIGTERM);
  EXPECT_EQ(two.Wait(), 0) << two.err();
  EXPECT_EQ(Records(run.journal(), "finished"), 0) << "it left in the middle";
  const json summary = run.End();
  EXPECT_EQ(summary["weights_sha256"], WholeWeights());
  EXPECT_EQ(summary["recoveries"].size(), 0u);
  EXPECT_EQ(Records(run.journal(), "worker_lost"), 0);
  EXPECT_EQ(Records(run.journal(), "plan"), 2);
  EXPECT_THAT(run.central().err() + run.central().out(), HasSubstr("worker two has left"));
}

TEST(Members, OneThatJoinsGetsAStage) {
  RunOfThree run;
  Process one(run.Worker("one"));
  Process two(run.Worker("two"));
  ASSERT_TRUE(run.Trains()) << run.central().err();
  Process late(run.Worker("late"));
  EXPECT_TRUE(run.central().WaitForOutput("worker late has joined")) << run.central().err();
  EXPECT_TRUE(WaitForRecords(run.journal(), "plan", 2));
  const json summary = run.End();
  EXPECT_EQ(summary["weights_sha256"], WholeWeights());
  EXPECT_EQ(summary["plan"]["stages"].size(), 4u);
}

TEST(Members, AnOperatorListsPausesAndDrains) {
  RunOfThree run;
  Process one(run.Worker("one"));
  Process two(run.Worker("two"));
  ASSERT_TRUE(run.Trains()) << run.central().err();
  ScratchDir dir;
  const std::string file = dir / "trace.json";
  Process trace = run.Order({"trace", "--seconds", "0.3", "--out", file});
  EXPECT_EQ(trace.Wait(), 0) << trace.err();
  std::set<int> traced;  // devices that computed
  int arrows = 0;
  const json written = json::parse(ReadFile(file));
  for (const json& event : written["traceEvents"]) {
    if (event["ph"] == "X") traced.insert(event["pid"].get<int>());
    if (event["ph"] == "f") ++arrows;
  }
  EXPECT_EQ(traced.size(), 3u);
  EXPECT_GT(arrows, 0);
  EXPECT_EQ(run.Order({"trace", "--seconds", "61"}).Wait(), 2);
  EXPECT_EQ(run.Order({"pause"}).Wait(), 0);
  ASSERT_TRUE(run.central().WaitForOutput("paused at step")) << run.central().err();
  Process devices = run.Order({"devices"});
  EXPECT_EQ(devices.Wait(), 0) << devices.err();
  EXPECT_THAT(devices.out(), AllOf(HasSubstr("local-000  trains layers 0 to"),
                                   HasSubstr("two        trains layers"), HasSubstr(", paused")));
  Process unknown = run.Order({"drain", "nobody"});
  EXPECT_EQ(unknown.Wait(), 2);
  EXPECT_THAT(unknown.err(), HasSubstr("no worker named nobody"));
  EXPECT_EQ(run.Order({"drain", "local-000"}).Wait(), 1) << "stage 0 is there";
  EXPECT_EQ(run.Order({"drain", "one"}).Wait(), 0);
  EXPECT_TRUE(one.WaitForOutput("was drained")) << one.err() << "it dials again, in vain";
  EXPECT_EQ(run.Order({"continue"}).Wait(), 0);
  const json summary = run.End();
  EXPECT_EQ(summary["weights_sha256"], WholeWeights());
  EXPECT_EQ(summary["recoveries"].size(), 0u);
  EXPECT_EQ(summary["plan"]["stages"].size(), 2u);
}

TEST(Members, ARunIsEndedByAnOrder) {
  RunOfThree run;
  Process one(run.Worker("one"));
  Process two(run.Worker("two"));
  ASSERT_TRUE(run.Trains()) << run.central().err();
  // An even cut has no times of layers to plan with.
  Process replan = run.Order({"replan"});
  EXPECT_EQ(replan.Wait(), 1);
  EXPECT_THAT(replan.err(), HasSubstr("layers do not move in this run"));
  Process unsure = run.Order({"stop"});
  EXPECT_EQ(unsure.Wait(), 1);
  EXPECT_THAT(unsure.err(), AllOf(HasSubstr("loses the weights"), HasSubstr("stop --sure")));
  Process sure = run.Order({"stop", "--sure"});
  EXPECT_EQ(sure.Wait(), 0) << sure.err();
  EXPECT_THAT(sure.out(), HasSubstr("training ends at the next barrier"));
  EXPECT_EQ(run.central().Wait(), 130) << run.central().err();
}

// Another user of the host, who cannot read the secret of central's port.
TEST(Members, NobodyElseGivesOrders) {
  RunOfThree run;
  const ScratchDir theirs;
  Process stranger({"runnel-central", "pause", "--central", run.address()},
                   [&] { setenv("RUNNEL_RUNTIME_DIR", theirs.path().c_str(), 1); });
  EXPECT_EQ(stranger.Wait(), 2);
  EXPECT_THAT(stranger.err(), HasSubstr("showed no join secret"));
}

}  // namespace
}  // namespace runnel::members_test
