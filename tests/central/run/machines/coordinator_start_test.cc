// Workers are lost, or are too few, before the first plan.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "central/run/machines/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/coordinator_run.h"
#include "tests/central/sample_hello.h"
#include "tests/central/scripted_planner.h"

namespace runnel::coordinator_start_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

// w0 is central's own, w1 and w2 dial in; devices are measured one after the other.
class CoordinatorStart : public ::testing::Test {
 protected:
  void Begin(std::optional<int> least_dialling = {}, bool needs_profile = true) {
    CoordinatorOptions options = LeNetRun(2);
    options.roster.least_dialling = least_dialling;
    options.needs_profile = needs_profile;
    options.measurement.sub_models = {{0, 0}, {0, 5}};
    planner_.layers = 6;
    planner_.first_plan = [](const std::vector<DeviceFacts>& devices) {
      std::vector<int> numbers, ends;
      for (size_t i = 0; i < devices.size(); ++i) {
        if (!devices[i].is_lost) numbers.push_back(static_cast<int>(i));
      }
      for (size_t i = 0; i < numbers.size(); ++i) ends.push_back(static_cast<int>(i));
      ends.back() = 5;
      return PlanOf(numbers, ends);
    };
    planner_.first_fails = [this](const std::vector<DeviceFacts>& devices) {
      const auto there = [](const DeviceFacts& device) { return !device.is_lost; };
      if (static_cast<size_t>(std::count_if(devices.begin(), devices.end(), there)) >= fit_)
        return absl::OkStatus();
      return absl::InvalidArgumentError("no plan fits the workers' memory");
    };
    options.planner = &planner_;
    coordinator_ = Coordinator::Create(std::move(options)).value();
    Tick(0);
  }
  void Join(int64_t id, const std::string& name) {
    coordinator_->Joined(ConnectionId(id), SampleHello(name), name == "w0");
    Settle();
  }
  void Lose(int64_t id) {
    gone_.push_back(id);
    coordinator_->Gone(ConnectionId(id), absl::UnavailableError("killed"));
    Settle();
  }
  void Tick(int64_t ns) {
    coordinator_->TimerFired(now_ns_ += ns, 0);
    Settle();
  }
  void Settle() {
    for (RunEffects effects = coordinator_->TakeEffects(); !effects.empty();
         effects = coordinator_->TakeEffects()) {
      for (const auto& [id, request] : MessagesOf<ProfileRequest>(effects)) {
        measured_.push_back(id);
        if (id == fails_)
          coordinator_->Received(ConnectionId(id), ProfileFailed{"no memory", true, Generation()});
        if (std::find(silent_.begin(), silent_.end(), id) == silent_.end())
          coordinator_->Received(ConnectionId(id), ProfileReport{.layer_seconds = {1, 2},
                                                                 .generation = request.generation});
      }
      for (const auto& [id, prepare] : MessagesOf<PrepareStage>(effects)) prepared_.push_back(id);
      for (const StartLocalWorker& start : EffectsOf<StartLocalWorker>(effects))
        started_.push_back(start.name);
      for (const LogLine& line : EffectsOf<LogLine>(effects)) lines_ += line.text + "\n";
      for (const RunEnded& ended : EffectsOf<RunEnded>(effects)) ended_ = ended.status;
    }
  }

  ScriptedPlanner planner_;
  std::optional<Coordinator> coordinator_;
  int64_t now_ns_ = 1'000 * kSecond;
  std::vector<int64_t> silent_;  // do not answer what is measured
  int64_t fails_ = -1;           // cannot measure
  size_t fit_ = 0;               // workers that a plan needs
  std::vector<int64_t> measured_, prepared_, gone_;
  std::vector<std::string> started_;
  std::string lines_;
  absl::Status ended_ = absl::UnknownError("still running");
};

TEST_F(CoordinatorStart, ALossCostsWhatWasMeasuredOfIt) {
  silent_ = {1};
  Begin(/*least_dialling=*/1);
  for (const int64_t id : {0, 1, 2}) Join(id, "w" + std::to_string(id));
  EXPECT_THAT(measured_, ElementsAre(0, 1));
  Lose(1);
  EXPECT_THAT(measured_, ElementsAre(0, 1, 2));
  EXPECT_THAT(prepared_, ElementsAre(0, 2));
  EXPECT_THAT(lines_, HasSubstr("worker w1 was lost before the first plan (killed): the start goes "
                                "on without it"));
}

TEST_F(CoordinatorStart, WhereAllAreNeededOneIsWaitedForInItsPlace) {
  silent_ = {2};
  Begin();
  for (const int64_t id : {0, 1, 2}) Join(id, "w" + std::to_string(id));
  Lose(1);  // it was measured already
  coordinator_->Received(ConnectionId(2), ProfileReport{.layer_seconds = {1, 2}});
  Settle();
  EXPECT_THAT(prepared_, IsEmpty());
  EXPECT_TRUE(coordinator_->joining());
  EXPECT_THAT(lines_, HasSubstr("waiting: 2 of 3 workers are there (w0, w2); gone again: w1"));
  Join(11, "w1");
  EXPECT_THAT(measured_, ElementsAre(0, 1, 2, 11));
  EXPECT_THAT(prepared_, ElementsAre(0, 11, 2));
  EXPECT_FALSE(coordinator_->joining());
}

TEST_F(CoordinatorStart, NobodyIsWaitedForForEver) {
  Begin(std::nullopt, /*needs_profile=*/false);
  for (const int64_t id : {0, 1}) Join(id, "w" + std::to_string(id));
  coordinator_->JoinTimedOut(60);
  Settle();
  EXPECT_EQ(ended_.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(ended_.message()),
              HasSubstr("after 60 s 2 of 3 workers are there (w0, w1)"));

  silent_ = {2};
  Begin();
  for (const int64_t id : {0, 1, 2}) Join(id, "w" + std::to_string(id));
  Lose(1);
  coordinator_->Received(ConnectionId(2), ProfileReport{.layer_seconds = {1, 2}});
  Settle();
  Tick(kSecond / 10);
  Tick(59 * kSecond);
  EXPECT_TRUE(coordinator_->joining());
  Tick(kSecond);
  EXPECT_FALSE(coordinator_->joining());
  EXPECT_THAT(std::string(ended_.message()), HasSubstr("gone again: w1"));
}

TEST_F(CoordinatorStart, WhoCannotMeasureIsLeftOut) {
  fails_ = 1;
  Begin();
  for (const int64_t id : {0, 1, 2}) Join(id, "w" + std::to_string(id));
  EXPECT_THAT(prepared_, ElementsAre(0, 2));
  EXPECT_THAT(lines_, HasSubstr("worker w1 could not measure (no memory)"));
}

TEST_F(CoordinatorStart, WhereNoPlanFitsThoseThatMayStillComeAreWaitedFor) {
  for (const bool comes : {true, false}) {
    fit_ = 3;
    prepared_.clear();
    Begin(/*least_dialling=*/1);
    Join(0, "w0");
    Join(1, "w1");
    coordinator_->JoinTimedOut(60);
    Settle();
    Tick(kSecond);
    EXPECT_THAT(prepared_, IsEmpty());
    EXPECT_TRUE(coordinator_->joining());
    EXPECT_THAT(lines_,
                HasSubstr("waiting: 2 of 3 workers are there (w0, w1), 2 are needed; no plan "
                          "fits the workers' memory"));
    if (comes) {
      Join(2, "w2");
      EXPECT_THAT(prepared_, ElementsAre(0, 1, 2));
      continue;
    }
    Tick(60 * kSecond);
    EXPECT_EQ(ended_.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(ended_.message()),
              "no plan fits the workers' memory; nobody who would do has come in 60 s "
              "(--worker-timeout-s)");
  }
}

TEST_F(CoordinatorStart, WhereNobodyElseCanComeNobodyIsWaitedFor) {
  fit_ = 4;
  Begin();
  for (const int64_t id : {0, 1, 2}) Join(id, "w" + std::to_string(id));
  EXPECT_EQ(std::string(ended_.message()), "no plan fits the workers' memory");
}

TEST_F(CoordinatorStart, AWorkerOfThisHostIsStartedAgain) {
  silent_ = {0};
  Begin();
  Join(0, "w0");
  Lose(0);
  EXPECT_THAT(started_, ElementsAre("w0")) << "before all have joined";
  for (const int64_t id : {1, 2}) Join(id, "w" + std::to_string(id));
  Join(0, "w0");
  EXPECT_THAT(measured_, ElementsAre(0));
  Lose(0);
  EXPECT_THAT(started_, ElementsAre("w0", "w0")) << "while devices are measured";
  EXPECT_THAT(measured_, ElementsAre(0, 1, 2));
  EXPECT_TRUE(coordinator_->joining());
  coordinator_->EndedBeforeJoining("w0", absl::UnavailableError("signal 9"));
  Settle();
  EXPECT_THAT(started_, ElementsAre("w0", "w0", "w0"));
  Join(10, "w0");
  EXPECT_THAT(measured_, ElementsAre(0, 1, 2, 10));
  EXPECT_THAT(prepared_, ElementsAre(10, 1, 2));
}

TEST_F(CoordinatorStart, OneThatEndsByItselfWouldDoSoAgain) {
  Begin();
  coordinator_->EndedBeforeJoining("w0", absl::AbortedError("exit code 2 before it joined"));
  Settle();
  EXPECT_EQ(ended_.code(), absl::StatusCode::kAborted);
}

TEST_F(CoordinatorStart, BeginsWithTheLeastNumberAfterAWhile) {
  Begin(/*least_dialling=*/1);
  Join(0, "w0");
  Tick(20 * kSecond);
  Join(1, "w1");
  Tick(kSecond / 10);
  Tick(Gathering::kGraceNs - 1);
  EXPECT_THAT(measured_, IsEmpty()) << "the others may be about to come";
  Tick(1);
  EXPECT_THAT(prepared_, ElementsAre(0, 1));
  Join(2, "w2");
  EXPECT_EQ(coordinator_->devices().size(), 3u);
  EXPECT_EQ(ended_.message(), "still running");
}

TEST_F(CoordinatorStart, WithAllOfThemItBeginsAtOnce) {
  Begin(/*least_dialling=*/0);
  for (const int64_t id : {2, 0, 1}) Join(id, "w" + std::to_string(id));
  EXPECT_THAT(prepared_, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace runnel::coordinator_start_test
