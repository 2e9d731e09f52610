// What the coordinator makes of workers that the detector finds lost, and of those that come back.

#include "central/run/machines/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/coordinator_run.h"
#include "tests/central/scripted_planner.h"

namespace runnel::coordinator_losses_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

// Three workers that take every stage that they get, and train for ever.
class CoordinatorLosses : public ::testing::Test {
 protected:
  explicit CoordinatorLosses(int64_t gathers_ns = 0) {
    CoordinatorOptions options = LeNetRun(2);
    options.stage.training.dataset_samples = 1'200;
    options.barriers.rule = {.every = 40, .steps_per_epoch = 80, .epochs = 3};
    options.barriers.stop_step = 120;
    planner_.first_plan = [](const auto&) { return PlanOf({0, 1, 2}, {1, 3, 5}); };
    options.planner = &planner_;
    coordinator_ = Coordinator::Create(std::move(options)).value();
    for (const int64_t begun_ns = now_ns_; now_ns_ < begun_ns + gathers_ns; now_ns_ += 100 * kMs)
      coordinator_->TimerFired(now_ns_, 0);
    JoinWorkers(*coordinator_, 3);
    coordinator_->TimerFired(now_ns_, 0);
    for (int i = 0; i < 3; ++i)
      coordinator_->PortProbed(ConnectionId(i), PortAnswer::kAnswered, now_ns_);
    Settle();
    EXPECT_EQ(ReceiversOf<RunUntil>(seen_).size(), 3u);
    seen_.clear();
  }

  // Everything that the coordinator wanted since.
  void Settle() {
    for (RunEffects effects = coordinator_->TakeEffects(); !effects.empty();
         effects = coordinator_->TakeEffects()) {
      for (const auto& [id, prepare] : MessagesOf<PrepareStage>(effects))
        coordinator_->Received(ConnectionId(id), StagePrepared{prepare.plan.generation});
      for (const auto& [id, commit] : MessagesOf<CommitPlan>(effects))
        coordinator_->Received(ConnectionId(id), StageReady{commit.generation});
      seen_.insert(seen_.end(), effects.begin(), effects.end());
    }
  }
  void Tick() {
    now_ns_ += 100 * kMs;
    for (const int64_t id : {0, 2})
      coordinator_->Received(ConnectionId(id), Heartbeat{WorkerPhase::kIdle, 7, now_ns_});
    coordinator_->TimerFired(now_ns_, 0);
    Settle();
  }
  // How often worker 1's port was asked.
  int Questions() const {
    int questions = 0;
    for (const ProbePort& probe : EffectsOf<ProbePort>(seen_))
      questions += probe.connection == one_;
    return questions;
  }
  std::string Lines() const {
    std::string lines;
    for (const LogLine& line : EffectsOf<LogLine>(seen_)) lines += line.text + "\n";
    return lines;
  }

  ScriptedPlanner planner_;
  std::optional<Coordinator> coordinator_;
  int64_t now_ns_ = 1'000'000 * kMs;
  RunEffects seen_;
  const ConnectionId one_{1};
};

TEST_F(CoordinatorLosses, AWorkerWhosePortIsClosedIsLostOnceAndHeardNoMore) {
  coordinator_->Broken(one_, absl::UnavailableError("reset"), now_ns_);
  Settle();
  ASSERT_EQ(Questions(), 1);
  coordinator_->PortProbed(one_, PortAnswer::kAnswered, now_ns_);
  Tick();
  EXPECT_TRUE(RecordsOf<WorkerLost>(seen_).empty()) << "it may come back";
  ASSERT_EQ(Questions(), 2);
  coordinator_->PortProbed(one_, PortAnswer::kRefused, now_ns_ + 10 * kMs);
  Settle();
  ASSERT_EQ(RecordsOf<WorkerLost>(seen_).size(), 1u);
  EXPECT_THAT(RecordsOf<WorkerLost>(seen_)[0].reason, HasSubstr("dead: reset"));
  ASSERT_EQ(EffectsOf<CloseControl>(seen_).size(), 1u);
  EXPECT_EQ(EffectsOf<CloseControl>(seen_)[0].connection, one_);
  EXPECT_THAT(ReceiversOf<PrepareStage>(seen_), ElementsAre(0, 2));
  // What it says after all, and that its stream ends, is no news.
  coordinator_->Received(one_, StageFailed{Generation(2), "late"});
  coordinator_->Gone(one_, absl::UnavailableError("closed"));
  Tick();
  EXPECT_EQ(RecordsOf<WorkerLost>(seen_).size(), 1u);
  EXPECT_TRUE(EffectsOf<RunEnded>(seen_).empty());
}

TEST_F(CoordinatorLosses, AConnectionThatComesBackCostsNothing) {
  coordinator_->Broken(one_, absl::UnavailableError("reset"), now_ns_);
  coordinator_->PortProbed(one_, PortAnswer::kAnswered, now_ns_);
  coordinator_->Resumed(one_, now_ns_ + 50 * kMs);
  Tick();
  EXPECT_TRUE(RecordsOf<WorkerLost>(seen_).empty());
  EXPECT_THAT(Lines(), HasSubstr("worker w1 is connected again"));
}

TEST_F(CoordinatorLosses, AStreamOfNobodyIsNotKept) {
  coordinator_->Broken(ConnectionId(77), absl::UnavailableError("reset"), now_ns_);
  Settle();
  ASSERT_EQ(EffectsOf<CloseControl>(seen_).size(), 1u);
  EXPECT_EQ(EffectsOf<CloseControl>(seen_)[0].connection, ConnectionId(77));
}

// The first workers waited a minute for the last one: that is no price of a loss.
class AfterAMinuteOfGathering : public CoordinatorLosses {
 protected:
  AfterAMinuteOfGathering() : CoordinatorLosses(60'000 * kMs) {}
};

TEST_F(AfterAMinuteOfGathering, AWorkerThatIsCutOffIsLostWithinThreeSeconds) {
  for (int tick = 0; tick < 30; ++tick) {
    const int asked = Questions();
    Tick();
    if (Questions() > asked) coordinator_->PortProbed(one_, PortAnswer::kNone, now_ns_);
    Settle();
  }
  ASSERT_EQ(RecordsOf<WorkerLost>(seen_).size(), 1u);
  EXPECT_THAT(RecordsOf<WorkerLost>(seen_)[0].reason, HasSubstr("cut off"));
}

// Nobody is silent, and nothing moves: a link that cannot be had, a message that was forgotten.
TEST_F(CoordinatorLosses, WhereNothingMovesTheRunEndsAndSaysWhatItWaitsFor) {
  for (int tick = 0; tick < 9'100 && EffectsOf<RunEnded>(seen_).empty(); ++tick) {
    coordinator_->Received(one_, Heartbeat{WorkerPhase::kIdle, 7, now_ns_});
    Tick();
  }
  ASSERT_EQ(EffectsOf<RunEnded>(seen_).size(), 1u);
  const absl::Status end = EffectsOf<RunEnded>(seen_)[0].status;
  EXPECT_EQ(end.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(end.message()),
              HasSubstr("nothing has moved for 900 s while the stages train"));
}

}  // namespace
}  // namespace runnel::coordinator_losses_test
