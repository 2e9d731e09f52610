// The daemon against a central of the test's own: what it answers with and without a stage.

#include "worker/daemon.h"

#include <algorithm>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/support/in_process/loopback.h"
#include "tests/support/in_process/loopback_control.h"
#include "tests/support/scratch.h"
#include "tests/transport/control_recorders.h"

namespace runnel::daemon_test {
namespace {

using ::testing::HasSubstr;

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() : central_(control_.Listen("127.0.0.1:0", &seen_).value()) {
    WorkerOptions options;
    options.central_address = central_->address();
    options.name = "w";
    options.state_folder = folder_ / "state";
    options.device = "a device";
    daemon_ = std::make_unique<Daemon>(
        options, Daemon::Parts{transport_.get(), &control_, &clock_, &logger_});
    thread_ = std::thread([this] { result_ = daemon_->Run(); });
    id_ = seen_.WaitForJoined(1).value_or(ConnectionId());
    EXPECT_TRUE(seen_.WaitForMessages(id_, 1)) << "the hello";
  }
  ~DaemonTest() override {
    EXPECT_TRUE(central_->Send(id_, Release{}).ok());
    thread_.join();
    EXPECT_TRUE(result_.ok()) << result_;
    daemon_.reset();
  }

  static bool ComesByItself(const WorkerMessage& message) {
    return std::holds_alternative<Telemetry>(message) ||
           std::holds_alternative<Heartbeat>(message) ||
           std::holds_alternative<ProfileProgress>(message);
  }

  // Where the first message of this kind is among all that have come, from `from` on.
  template <typename Message>
  size_t Find(size_t from = 0) {
    size_t at = from;
    while (seen_.WaitForMessages(id_, at + 1)) {
      if (std::holds_alternative<Message>(seen_.messages(id_)[at])) return at;
      ++at;
    }
    ADD_FAILURE() << "did not come";
    return at;
  }

  // The first answer of this kind to what is sent.
  template <typename Answer>
  Answer Ask(CentralMessage message) {
    const size_t before = seen_.messages(id_).size();
    EXPECT_TRUE(central_->Send(id_, std::move(message)).ok());
    for (size_t at = before; seen_.WaitForMessages(id_, at + 1); ++at) {
      const std::vector<WorkerMessage> messages = seen_.messages(id_);
      if (const auto* answer = std::get_if<Answer>(&messages[at])) return *answer;
      EXPECT_TRUE(ComesByItself(messages[at])) << messages[at].index();
    }
    ADD_FAILURE() << "no answer";
    return Answer();
  }

  // The whole model as one stage, whose state it draws.
  PrepareStage WholeModel() const {
    PrepareStage stage;
    stage.model = model_;
    stage.plan.generation = Generation(3);
    stage.plan.stages.push_back({{Seat{DeviceId(0)}}, 0, model_.layer_count() - 1, 1});
    stage.training.dataset_samples = 100;
    stage.training.batch_size = 4;
    stage.training.seed = 9;
    stage.recipe = "fp32";
    stage.backend = "ref";
    stage.link_token = "t";
    stage.draws_state = true;
    return stage;
  }

  ProfileRequest FirstLayers() const {
    ProfileRequest request;
    request.model = model_;
    request.recipe = "fp32";
    request.backend = "ref";
    request.micro_batch_size = request.repetitions = 1;
    request.ranges = {{0, 1}};
    return request;
  }

  const ScratchDir folder_;
  ModelSpec model_ = MakeModel("lenet").value();
  MonotonicClock clock_;
  NullLogger logger_;
  CentralRecorder seen_;
  LoopbackControl control_;
  const std::unique_ptr<Transport> transport_ = MakeLoopbackTransport();
  const std::unique_ptr<CentralControl> central_;
  std::unique_ptr<Daemon> daemon_;
  std::thread thread_;
  absl::Status result_;
  ConnectionId id_;
};

// Central would wait for ever.
TEST_F(DaemonTest, RequestsWithoutAStageAreAnswered) {
  const Generation none;
  EXPECT_THAT(Ask<StageFailed>(RunUntil{none, Sequence(5)}).reason,
              HasSubstr("to train and has no"));
  EXPECT_THAT(Ask<StageFailed>(SnapshotRequest{none, Sequence(5)}).reason,
              HasSubstr("report its state"));
  EXPECT_THAT(Ask<StageFailed>(EvaluateRequest{none, Sequence(0), 1}).reason,
              HasSubstr("to evaluate"));
  EXPECT_THAT(Ask<StageFailed>(FetchLayers{Generation(2), {}}).reason, HasSubstr("hand over"));
  EXPECT_THAT(Ask<StageFailed>(Replicate{{none, Sequence(5)}}).reason, HasSubstr("replicate"));
}

TEST_F(DaemonTest, AFailedMeasurementLeavesTheStageAsItIs) {
  EXPECT_EQ(Ask<StagePrepared>(WholeModel()).generation, Generation(3));
  ASSERT_TRUE(central_->Send(id_, CommitPlan{Generation(3)}).ok());
  ProfileRequest request = FirstLayers();
  request.backend = "no_such_backend";
  request.generation = Generation(3);
  const ProfileFailed failed = Ask<ProfileFailed>(request);
  EXPECT_THAT(failed.reason, HasSubstr("no_such_backend"));
  EXPECT_EQ(failed.generation, Generation(3));
  const Snapshot snapshot = Ask<Snapshot>(SnapshotRequest{Generation(3), Sequence(0)});
  EXPECT_EQ(snapshot.generation, Generation(3));
  EXPECT_TRUE(snapshot.state == InitialState(model_, 9).value()) << "drawn as central would";
}

TEST_F(DaemonTest, TellsWhatItWouldRunWhere) {
  ProgramRequest request{Generation(3), model_, "niti", "cpu,ref@*=ref", {2, 5}, 4};
  request.training = WholeModel().training;
  const ProgramReport report = Ask<ProgramReport>(request);
  EXPECT_EQ(report.generation, Generation(3));
  EXPECT_EQ(report.failure, "");
  EXPECT_EQ(report.listing.first_layer, 2);
  ASSERT_FALSE(report.listing.lines.empty());
  EXPECT_EQ(report.listing.lines[0].instruction, "int8_conv_forward");
  EXPECT_EQ(report.listing.lines[0].processor, "ref");
  EXPECT_TRUE(report.listing.lines[0].switches);
  request.backend = "cpu,warp";
  EXPECT_THAT(Ask<ProgramReport>(request).failure, HasSubstr("'warp' is not known"));
}

// What was on its way when a plan came to its end is about no stage that stands.
TEST_F(DaemonTest, MessagesAboutAnotherPlanAreDropped) {
  EXPECT_EQ(Ask<StagePrepared>(WholeModel()).generation, Generation(3));
  ASSERT_TRUE(central_->Send(id_, CommitPlan{Generation(3)}).ok());
  for (const int32_t other : {2, 4}) {
    ASSERT_TRUE(central_->Send(id_, SnapshotRequest{Generation(other), Sequence(7)}).ok());
    ASSERT_TRUE(central_->Send(id_, RunUntil{Generation(other), Sequence(9)}).ok());
    ASSERT_TRUE(central_->Send(id_, EvaluateRequest{Generation(other), Sequence(0), 1}).ok());
  }
  EXPECT_EQ(Ask<Snapshot>(SnapshotRequest{Generation(3), Sequence(0)}).sequence, Sequence(0));
}

// The layers that a worker has are of a later step than the one from which a recovery goes on.
TEST_F(DaemonTest, ARecoveryTakesNothingFromTheStageThatStands) {
  EXPECT_EQ(Ask<StagePrepared>(WholeModel()).generation, Generation(3));
  ASSERT_TRUE(central_->Send(id_, CommitPlan{Generation(3)}).ok());
  PrepareStage stage = WholeModel();
  stage.plan.generation = Generation(4);
  stage.draws_state = false;
  stage.starts_over = true;
  stage.state = InitialState(model_, 10).value();
  const ModelState given = stage.state;
  EXPECT_EQ(Ask<StagePrepared>(std::move(stage)).generation, Generation(4));
  ASSERT_TRUE(central_->Send(id_, CommitPlan{Generation(4)}).ok());
  const Snapshot snapshot = Ask<Snapshot>(SnapshotRequest{Generation(4), Sequence(0)});
  EXPECT_TRUE(snapshot.state == given);
  // One layer is missing: nothing else may stand in for it.
  PrepareStage partial = WholeModel();
  partial.plan.generation = Generation(5);
  partial.draws_state = false;
  partial.starts_over = true;
  partial.state = given;
  partial.state.layers.pop_back();
  EXPECT_EQ(Ask<StageFailed>(std::move(partial)).generation, Generation(5));
}

// The worker's copy of a barrier outlives the stage that made it.
TEST_F(DaemonTest, ARecoveryTakesWhatTheWorkerHasOfABarrier) {
  EXPECT_EQ(Ask<StagePrepared>(WholeModel()).generation, Generation(3));
  ASSERT_TRUE(central_->Send(id_, CommitPlan{Generation(3)}).ok());
  const ReplicaId barrier = {Generation(3), Sequence(0)};
  ASSERT_TRUE(central_->Send(id_, Replicate{{Generation(2), Sequence(0)}}).ok()) << "dropped";
  EXPECT_EQ(Ask<Replicated>(Replicate{barrier}).id, barrier);
  ASSERT_TRUE(central_->Send(id_, CommitReplicas{barrier}).ok());
  // Not committed: nobody will ask for it.
  Ask<Replicated>(Replicate{{Generation(3), Sequence(8)}});

  PrepareStage stage = WholeModel();
  stage.plan.generation = Generation(4);
  stage.draws_state = false;
  stage.starts_over = true;
  stage.replica = barrier;
  // What comes from elsewhere takes the place of what is here.
  stage.state = Slice(InitialState(model_, 10).value(), 2, 2);
  ModelState expected = InitialState(model_, 9).value();
  Merge(stage.state, expected);
  EXPECT_EQ(Ask<StagePrepared>(std::move(stage)).generation, Generation(4));
  const LayersFetched fetched =
      Ask<LayersFetched>(FetchLayers{Generation(5), {{0, 0}, {3, 4}}, barrier});
  ASSERT_EQ(fetched.state.layers.size(), 3u);
  EXPECT_EQ(fetched.generation, Generation(5));
  EXPECT_TRUE(fetched.state.layers[1] == InitialState(model_, 9).value().layers[3]);
  ASSERT_TRUE(central_->Send(id_, CommitPlan{Generation(4)}).ok());
  const Snapshot snapshot = Ask<Snapshot>(SnapshotRequest{Generation(4), Sequence(0)});
  EXPECT_TRUE(snapshot.state == expected);
  const StageFailed missing =
      Ask<StageFailed>(FetchLayers{Generation(5), {{0, 0}}, ReplicaId{Generation(3), Sequence(8)}});
  EXPECT_THAT(missing.reason, HasSubstr("has no copy of layer 0"));
}

TEST_F(DaemonTest, ATrainIsAnsweredWithWhatWasMeasuredAndATrain) {
  const std::vector<ProbePiece> train = MakeProbeTrain(64 * 1024, 64 * 1024);
  for (size_t i = 0; i + 1 < train.size(); ++i) EXPECT_TRUE(central_->Send(id_, train[i]).ok());
  const size_t before = seen_.messages(id_).size();
  EXPECT_GE(Ask<WayMeasured>(train.back()).ns, 0);
  ASSERT_TRUE(seen_.WaitForMessages(id_, before + 1 + train.size()));
  int64_t bytes = 0;
  for (const WorkerMessage& message : seen_.messages(id_)) {
    if (const auto* piece = std::get_if<ProbePiece>(&message))
      bytes += static_cast<int64_t>(piece->padding.size());
  }
  EXPECT_EQ(bytes, 64 * 1024);
}

TEST_F(DaemonTest, WhatItMeasuredForARunItNeedNotMeasureForTheNext) {
  ProfileRequest request = FirstLayers();
  EXPECT_FALSE(Ask<ProfileReport>(request).kept);
  request.accepts_kept = true;
  const ProfileReport measured = Ask<ProfileReport>(request);
  EXPECT_FALSE(measured.kept) << "what only a measurement answered is not kept";
  request.generation = Generation(2);
  const ProfileReport kept = Ask<ProfileReport>(request);
  EXPECT_TRUE(kept.kept) << "the plan that holds changes no measurement";
  EXPECT_EQ(kept.generation, Generation(2));
  EXPECT_EQ(kept.layer_seconds, measured.layer_seconds);
  EXPECT_EQ(kept.processor_share, measured.processor_share);
  request.accepts_kept = false;
  EXPECT_FALSE(Ask<ProfileReport>(request).kept);
}

// Of a measurement that goes on until many heartbeats have come.
ProfileRequest LongMeasurement(ProfileRequest request) {
  request.ranges.clear();
  request.burst_ms = 100;
  request.repetitions = 2;
  return request;
}

TEST_F(DaemonTest, TheLoopTurnsWhileTheWorkshopIsBusy) {
  ASSERT_TRUE(central_->Send(id_, LongMeasurement(FirstLayers())).ok());
  ASSERT_TRUE(central_->Send(id_, ProbePiece{.count = 1}).ok());
  const size_t report = Find<ProfileReport>();
  EXPECT_LT(Find<ProbePiece>(), report);
  const size_t first = Find<Heartbeat>();
  ASSERT_LT(first, report);
  std::vector<int64_t> progress;
  for (const WorkerMessage& message : seen_.messages(id_)) {
    const auto* heartbeat = std::get_if<Heartbeat>(&message);
    if (heartbeat != nullptr && heartbeat->phase == WorkerPhase::kMeasuring)
      progress.push_back(heartbeat->progress);
  }
  EXPECT_GE(progress.size(), 2u);
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_GT(progress.back(), 0);
}

TEST_F(DaemonTest, WhatComesMeanwhileIsCarriedOutInOrder) {
  ASSERT_TRUE(central_->Send(id_, LongMeasurement(FirstLayers())).ok());
  ASSERT_TRUE(central_->Send(id_, RunUntil{Generation(), Sequence(5)}).ok());
  PrepareStage stage = WholeModel();
  ASSERT_TRUE(central_->Send(id_, stage).ok());
  ASSERT_TRUE(central_->Send(id_, CommitPlan{Generation(3)}).ok());
  ASSERT_TRUE(central_->Send(id_, SnapshotRequest{Generation(3), Sequence(0)}).ok());
  const size_t report = Find<ProfileReport>();
  const size_t refused = Find<StageFailed>();
  const size_t prepared = Find<StagePrepared>();
  EXPECT_LT(report, refused);
  EXPECT_LT(refused, prepared);
  EXPECT_LT(prepared, Find<Snapshot>());
}

TEST_F(DaemonTest, APlanIsTakenBackBeforeItsStageIsMade) {
  ASSERT_TRUE(central_->Send(id_, LongMeasurement(FirstLayers())).ok());
  ASSERT_TRUE(central_->Send(id_, WholeModel()).ok());
  ASSERT_TRUE(central_->Send(id_, AbortPlan{Generation(3)}).ok());
  PrepareStage next = WholeModel();
  next.plan.generation = Generation(4);
  ASSERT_TRUE(central_->Send(id_, next).ok());
  const size_t prepared = Find<StagePrepared>();
  EXPECT_EQ(std::get<StagePrepared>(seen_.messages(id_)[prepared]).generation, Generation(4));
}

// Without --listen it is where central reaches it.
TEST_F(DaemonTest, ListensWhereItsControlConnectionIs) {
  const auto hello = std::get<WorkerHello>(seen_.messages(id_)[0]);
  EXPECT_THAT(hello.data_address, ::testing::StartsWith("127.0.0.1:"));
  EXPECT_THAT(hello.data_address, ::testing::Not(::testing::EndsWith(":0")));
}

}  // namespace
}  // namespace runnel::daemon_test
