// A barrier at which the way to a worker without a stage is measured before the planner decides.

#include <optional>
#include <string>
#include <vector>

#include "central/run/machines/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/central/run/machines/coordinator_run.h"
#include "tests/central/scripted_planner.h"

namespace runnel::coordinator_probe_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// w0 (on central's host) and w1 have a stage each, w2 has none; at step 40 the planner wants w2
// measured.
class ProbingCluster : public ::testing::Test {
 protected:
  void Begin(MeasureDevices wanted) {
    CoordinatorOptions options = LeNetRun(2);
    options.recovers = false;
    options.needs_profile = true;
    planner_.first_plan = [](const auto&) { return PlanOf({0, 1}, {2, 5}); };
    planner_.at_barrier = [this, wanted](const BarrierReport& report) -> BarrierDecision {
      asked_at_.push_back(report.step);
      facts_ = report.devices;
      times_ = report.times;
      if (report.step == 40 && asked_at_.size() == 1) return wanted;
      return KeepPlan{};
    };
    planner_.layers = 6;
    options.planner = &planner_;
    coordinator_ = Coordinator::Create(std::move(options)).value();
    JoinWorkers(*coordinator_, 3);
    Settle();
  }

  void Settle() {
    for (auto effects = coordinator_->TakeEffects(); !effects.empty();
         effects = coordinator_->TakeEffects()) {
      for (const RunEffect& effect : effects) {
        if (const auto* send = std::get_if<SendControl>(&effect))
          Answer(send->connection, send->message);
        if (const auto* line = std::get_if<LogLine>(&effect)) lines_ += line->text + "\n";
        if (const auto* ended = std::get_if<RunEnded>(&effect)) ended_ = ended->status;
      }
    }
  }
  void Leave(int device) {
    coordinator_->Gone(ConnectionId(device), absl::UnavailableError("gone"));
    Settle();
  }

  ScriptedPlanner planner_;
  std::optional<Coordinator> coordinator_;
  std::vector<int64_t> asked_at_;  // steps
  std::vector<DeviceFacts> facts_;
  std::vector<DeviceTimes> times_;
  std::string lines_;
  absl::Status ended_ = absl::UnknownError("still running");
  std::vector<int64_t> pinged_;
  std::vector<int64_t> profiled_;  // at a barrier
  bool is_silent_ = false;         // w2

 private:
  void Answer(ConnectionId id, const CentralMessage& message) {
    const auto reply = [&](WorkerMessage answer) { coordinator_->Received(id, answer); };
    if (const auto* request = std::get_if<ProfileRequest>(&message)) {
      if (coordinator_->step() > 0) profiled_.push_back(id.value());
      if (is_silent_ && coordinator_->step() > 0) return;
      ProfileReport report;
      report.generation = request->generation;
      report.layer_seconds.assign(request->ranges.size(), coordinator_->step() > 0 ? 7 : 1);
      reply(report);
    } else if (const auto* piece = std::get_if<ProbePiece>(&message)) {
      AnswerPiece(id, *piece);
    } else if (std::holds_alternative<PrepareStage>(message)) {
      reply(StagePrepared{Generation(1)});
    } else if (std::holds_alternative<CommitPlan>(message)) {
      reply(StageReady{Generation(1)});
    } else if (const auto* run = std::get_if<RunUntil>(&message)) {
      reply(BarrierReached{Generation(1), run->limit});
    }
  }
  void AnswerPiece(ConnectionId id, const ProbePiece& piece) {
    if (piece.is_ping()) {
      pinged_.push_back(id.value());
      if (is_silent_) return;
      now_ns_ += 20'000'000;
      ProbePiece pong{.count = 1};
      pong.arrived_ns = now_ns_;
      return coordinator_->Received(id, pong);
    }
    if (piece.index + 1 < piece.count) return;
    coordinator_->Received(id, WayMeasured{1e5, 500'000'000});
    if (piece.answer_bytes == 0) return;
    std::vector<ProbePiece> train = MakeProbeTrain(piece.answer_bytes);
    for (ProbePiece& part : train) {
      now_ns_ += 500'000'000 / static_cast<int64_t>(train.size());
      part.arrived_ns = now_ns_;
      coordinator_->Received(id, part);
    }
  }

  int64_t now_ns_ = 1'000'000'000;
};

TEST_F(ProbingCluster, ThePlannerIsAskedAgainWithThePathMeasured) {
  Begin({{}, {2}});
  EXPECT_THAT(asked_at_, ElementsAre(40, 40, 80));
  EXPECT_THAT(pinged_, ::testing::Each(2));
  EXPECT_THAT(profiled_, IsEmpty());
  ASSERT_EQ(facts_.size(), 3u);
  EXPECT_DOUBLE_EQ(facts_[2].path.down.rate.bytes_per_second(), 1e5);
  EXPECT_FALSE(facts_[1].path.down.rate.is_set());
  EXPECT_THAT(lines_, HasSubstr("step 40: worker w2 may get layers again, the link to it is"));
}

TEST_F(ProbingCluster, DevicesAreMeasuredAfterPaths) {
  Begin({{2}, {2}});
  EXPECT_THAT(asked_at_, ElementsAre(40, 40, 80));
  EXPECT_EQ(profiled_.front(), 2);
  EXPECT_THAT(lines_, HasSubstr("step 40: worker w2 was slow and may get layers again"));
  ASSERT_EQ(times_.size(), 3u);
  EXPECT_GT(times_[2].Seconds({0, 0}), 3 * times_[1].Seconds({0, 0}));
}

// A worker without a stage is no reason to wait, whatever was asked of it.
TEST_F(ProbingCluster, WhoLeavesMeanwhileIsNotWaitedFor) {
  for (const MeasureDevices& wanted : {MeasureDevices{{}, {2}}, MeasureDevices{{2}, {}}}) {
    asked_at_.clear();
    is_silent_ = true;
    Begin(wanted);
    ASSERT_THAT(asked_at_, ElementsAre(40));
    Leave(2);
    EXPECT_THAT(asked_at_, ElementsAre(40, 40, 80));
    EXPECT_TRUE(facts_[2].is_lost);
  }
}

TEST_F(ProbingCluster, StopIsHeardWhileAPathIsMeasured) {
  is_silent_ = true;
  Begin({{}, {2}});
  coordinator_->StopAtBarrier();
  Leave(2);
  EXPECT_THAT(asked_at_, ElementsAre(40)) << "the last state is collected";
}

}  // namespace
}  // namespace runnel::coordinator_probe_test
