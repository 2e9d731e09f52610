// What every control transport must do: the contract of control_channel.h.

#include "proto/transport/control/control_channel.h"

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "tests/support/in_process/loopback_control.h"
#include "tests/transport/control_recorders.h"

namespace runnel::control_channel_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct TransportRow {
  const char* name;
  std::unique_ptr<ControlTransport> (*make)();
};

const TransportRow kTransports[] = {
    {"loopback",
     []() -> std::unique_ptr<ControlTransport> { return std::make_unique<LoopbackControl>(); }},
    {"grpc", [] { return MakeGrpcControl(GrpcControlOptions{}); }},
};

constexpr int64_t kTimeoutMs = 20'000;

class ControlChannel : public testing::TestWithParam<TransportRow> {
 protected:
  void SetUp() override {
    transport_ = GetParam().make();
    absl::StatusOr<std::unique_ptr<CentralControl>> central =
        transport_->Listen("127.0.0.1:0", &central_seen_);
    ASSERT_TRUE(central.ok()) << central.status();
    central_ = *std::move(central);
  }
  void TearDown() override { EXPECT_FALSE(central_seen_.broken_rule()); }

  std::unique_ptr<WorkerControl> Connect(WorkerRecorder* seen) {
    absl::StatusOr<std::unique_ptr<WorkerControl>> worker =
        transport_->Connect(central_->address(), kTimeoutMs, seen);
    EXPECT_TRUE(worker.ok()) << worker.status();
    return worker.ok() ? *std::move(worker) : nullptr;
  }
  // Connects, says hello and waits until central has seen it.
  std::unique_ptr<WorkerControl> Join(WorkerRecorder* seen, ConnectionId* id) {
    std::unique_ptr<WorkerControl> worker = Connect(seen);
    const size_t before = central_seen_.joined();
    EXPECT_TRUE(worker->Send(HelloOf("w")).ok());
    const std::optional<ConnectionId> joined = central_seen_.WaitForJoined(before + 1);
    EXPECT_TRUE(joined.has_value());
    *id = joined.value_or(ConnectionId());
    EXPECT_TRUE(central_seen_.WaitForMessages(*id, 1));
    return worker;
  }

  CentralRecorder central_seen_;
  std::unique_ptr<ControlTransport> transport_;
  std::unique_ptr<CentralControl> central_;
};

INSTANTIATE_TEST_SUITE_P(All, ControlChannel, testing::ValuesIn(kTransports),
                         [](const auto& row) { return row.param.name; });

TEST_P(ControlChannel, JoinsAndTalksBothWaysInOrder) {
  constexpr int kMessages = 500;
  WorkerRecorder seen;
  ConnectionId id;
  const std::unique_ptr<WorkerControl> worker = Join(&seen, &id);
  EXPECT_EQ(std::get<WorkerHello>(central_seen_.messages(id)[0]).name, "w");
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(worker->Send(BarrierReached{Generation(1), Sequence(i)}).ok());
    ASSERT_TRUE(central_->Send(id, RunUntil{Generation(1), Sequence(i)}).ok());
  }
  ASSERT_TRUE(central_seen_.WaitForMessages(id, kMessages + 1));
  ASSERT_TRUE(seen.WaitForMessages(kMessages));
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_EQ(std::get<BarrierReached>(central_seen_.messages(id)[i + 1]).sequence, Sequence(i));
    EXPECT_EQ(std::get<RunUntil>(seen.messages()[i]).limit, Sequence(i));
  }
}

TEST_P(ControlChannel, TwoWorkersAreKeptApart) {
  WorkerRecorder seen_a, seen_b;
  ConnectionId a, b;
  const std::unique_ptr<WorkerControl> worker_a = Join(&seen_a, &a);
  std::unique_ptr<WorkerControl> worker_b = Join(&seen_b, &b);
  EXPECT_NE(a, b);
  ASSERT_TRUE(central_->Send(a, Welcome{DeviceId(1)}).ok());
  ASSERT_TRUE(central_->Send(b, Welcome{DeviceId(2)}).ok());
  ASSERT_TRUE(seen_a.WaitForMessages(1));
  ASSERT_TRUE(seen_b.WaitForMessages(1));
  EXPECT_EQ(std::get<Welcome>(seen_a.messages()[0]).device, DeviceId(1));
  EXPECT_EQ(std::get<Welcome>(seen_b.messages()[0]).device, DeviceId(2));
  worker_b.reset();
  EXPECT_TRUE(central_seen_.WaitForGone(b).ok());
  EXPECT_FALSE(seen_a.closed());
  ASSERT_TRUE(worker_a->Send(StageReady{Generation(7)}).ok());
  EXPECT_TRUE(central_seen_.WaitForMessages(a, 2));
}

PrepareStage MinimalStage() {
  OpSpec linear;
  linear.kind = OpKind::kLinear;
  linear.inputs = {0};
  linear.out_channels = 2;
  PrepareStage stage;
  stage.model.name = "m";
  stage.model.input = {3};
  stage.model.classes = 2;
  stage.model.layers.push_back({"l", {linear}});
  stage.plan.stages.push_back({{Seat{DeviceId(0)}}, 0, 0, 1});
  stage.training.dataset_samples = stage.training.batch_size = 4;
  stage.training.eval_batch_size = 4;
  stage.recipe = stage.backend = "r";
  return stage;
}

// A state of 20 MB, with momentum as large.
Snapshot LargeSnapshot() {
  Snapshot snapshot{Generation(3), Sequence(100), {}};
  for (int layer = 0; layer < 4; ++layer) {
    TensorData tensor{"0.weight", DType::kFloat32, {1250, 1000}, std::string(5'000'000, '\0')};
    for (size_t i = 0; i < tensor.bytes.size(); i += 97)
      tensor.bytes[i] = static_cast<char>(i % 251);
    snapshot.state.layers.push_back({layer, {tensor}, {tensor}});
  }
  return snapshot;
}

// Messages with a state keep their order; others may overtake them.
TEST_P(ControlChannel, LargeStatesArriveWholeAndInOrder) {
  WorkerRecorder seen;
  ConnectionId id;
  const std::unique_ptr<WorkerControl> worker = Join(&seen, &id);
  // Nothing large is taken of a worker before that.
  ASSERT_TRUE(central_->Send(id, Welcome{DeviceId(0)}).ok());
  ASSERT_TRUE(seen.WaitForMessages(1));
  const Snapshot snapshot = LargeSnapshot();
  ASSERT_TRUE(worker->Send(snapshot).ok());
  ASSERT_TRUE(worker->Send(LayersFetched{Generation(4), {}}).ok());
  ASSERT_TRUE(worker->Send(StageReady{Generation(3)}).ok());
  ASSERT_TRUE(worker->Send(BarrierReached{Generation(3), Sequence(100)}).ok());
  ASSERT_TRUE(central_seen_.WaitForMessages(id, 5));
  std::vector<size_t> with_state, without;
  for (const WorkerMessage& message : central_seen_.messages(id)) {
    const bool has_state =
        std::holds_alternative<Snapshot>(message) || std::holds_alternative<LayersFetched>(message);
    (has_state ? with_state : without).push_back(message.index());
    const auto* whole = std::get_if<Snapshot>(&message);
    EXPECT_TRUE(whole == nullptr || whole->state == snapshot.state);
  }
  EXPECT_THAT(with_state,
              ElementsAre(WorkerMessage(snapshot).index(), WorkerMessage(LayersFetched()).index()));
  EXPECT_THAT(without,
              ElementsAre(WorkerMessage(WorkerHello()).index(), WorkerMessage(StageReady()).index(),
                          WorkerMessage(BarrierReached()).index()));
}

// The worker's stage arrives, and central can show how far it has come.
TEST_P(ControlChannel, ALargeStageArrivesWhole) {
  WorkerRecorder seen;
  ConnectionId id;
  const std::unique_ptr<WorkerControl> worker = Join(&seen, &id);
  PrepareStage stage = MinimalStage();
  stage.state = LargeSnapshot().state;
  ASSERT_TRUE(central_->Send(id, stage).ok());
  ASSERT_TRUE(seen.WaitForMessages(1)) << seen.WaitForClosed();
  const std::vector<CentralMessage> messages = seen.messages();
  const auto* arrived = std::get_if<PrepareStage>(&messages[0]);
  ASSERT_NE(arrived, nullptr);
  EXPECT_TRUE(arrived->state == stage.state);
  EXPECT_EQ(central_->Transfer(ConnectionId(99)), TransferProgress());
}

TEST_P(ControlChannel, HelloOfAnotherVersionIsPassedUpAndRefusalArrives) {
  WorkerRecorder seen;
  const std::unique_ptr<WorkerControl> worker = Connect(&seen);
  WorkerHello hello = HelloOf("old");
  hello.protocol_version = kProtocolVersion + 1;
  ASSERT_TRUE(worker->Send(hello).ok());
  const std::optional<ConnectionId> id = central_seen_.WaitForJoined(1);
  ASSERT_TRUE(id.has_value());
  ASSERT_TRUE(central_seen_.WaitForMessages(*id, 1));
  EXPECT_EQ(std::get<WorkerHello>(central_seen_.messages(*id)[0]).protocol_version,
            kProtocolVersion + 1);
  ASSERT_TRUE(central_->Send(*id, Refused{"speaks version 2, central 1"}).ok());
  central_->Close(*id);
  EXPECT_TRUE(seen.WaitForClosed().ok());
  ASSERT_EQ(seen.messages().size(), 1u);
  EXPECT_EQ(std::get<Refused>(seen.messages()[0]).reason, "speaks version 2, central 1");
  EXPECT_TRUE(central_seen_.WaitForGone(*id).ok());
}

TEST_P(ControlChannel, AnythingBeforeHelloIsRefused) {
  WorkerRecorder seen;
  const std::unique_ptr<WorkerControl> worker = Connect(&seen);
  ASSERT_TRUE(worker->Send(StageReady{Generation(1)}).ok());
  const absl::Status status = seen.WaitForClosed();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("hello"));
  EXPECT_EQ(central_seen_.joined(), 0u);
}

TEST_P(ControlChannel, WorkerClosesInOrderAfterWhatItSaid) {
  WorkerRecorder seen;
  ConnectionId id;
  const std::unique_ptr<WorkerControl> worker = Join(&seen, &id);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(worker->Send(StageReady{Generation(i)}).ok());
  worker->Close();
  EXPECT_EQ(worker->Send(StageReady{Generation(1)}).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(central_seen_.WaitForGone(id).ok());
  EXPECT_EQ(central_seen_.messages(id).size(), 101u);
  EXPECT_TRUE(seen.WaitForClosed().ok());
  EXPECT_EQ(central_->Send(id, Release{}).code(), absl::StatusCode::kNotFound);
}

TEST_P(ControlChannel, DestructorsCallTheEndOnce) {
  WorkerRecorder seen_a, seen_b, seen_c;
  ConnectionId a, b;
  std::unique_ptr<WorkerControl> worker_a = Join(&seen_a, &a);
  std::unique_ptr<WorkerControl> worker_b = Join(&seen_b, &b);
  std::unique_ptr<WorkerControl> silent = Connect(&seen_c);
  worker_a.reset();
  EXPECT_TRUE(seen_a.closed());
  ASSERT_TRUE(central_->Send(b, Release{}).ok());
  central_.reset();
  EXPECT_TRUE(central_seen_.WaitForGone(b).ok());
  EXPECT_TRUE(seen_b.WaitForClosed().ok());
  EXPECT_EQ(seen_b.messages().size(), 1u);
  // Its call may not have reached central before the end, then it is refused.
  EXPECT_NE(seen_c.WaitForClosed().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(worker_b->Send(StageReady{Generation(1)}).code(), absl::StatusCode::kUnavailable);
  worker_b.reset();
  silent.reset();
  EXPECT_FALSE(seen_a.after_close() || seen_b.after_close() || seen_c.after_close());
}

TEST_P(ControlChannel, ObserverMayAnswerAndCloseFromItsCalls) {
  struct Answering final : CentralControlObserver {
    void OnJoined(ConnectionId id) override { (void)control->Send(id, Welcome{DeviceId(5)}); }
    void OnMessage(ConnectionId id, WorkerMessage) override {
      ++heard;
      (void)control->Send(id, Release{});
      control->Close(id);
    }
    void OnGone(ConnectionId id, const absl::Status&) override {
      (void)control->Send(id, Release{});
    }
    CentralControl* control = nullptr;
    std::atomic<int> heard = 0;  // nothing is after Close
  } answering;
  absl::StatusOr<std::unique_ptr<CentralControl>> central =
      transport_->Listen("127.0.0.1:0", &answering);
  ASSERT_TRUE(central.ok()) << central.status();
  answering.control = central->get();
  WorkerRecorder seen;
  const absl::StatusOr<std::unique_ptr<WorkerControl>> worker =
      transport_->Connect((*central)->address(), kTimeoutMs, &seen);
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE((*worker)->Send(HelloOf("w")).ok());
  for (int i = 0; i < 100; ++i) (void)(*worker)->Send(StageReady{Generation(i)});
  EXPECT_TRUE(seen.WaitForClosed().ok());
  EXPECT_EQ(answering.heard, 1);
  ASSERT_EQ(seen.messages().size(), 2u);
  EXPECT_TRUE(std::holds_alternative<Welcome>(seen.messages()[0]));
  EXPECT_TRUE(std::holds_alternative<Release>(seen.messages()[1]));
}

TEST_P(ControlChannel, PortInUseIsNamed) {
  CentralRecorder seen;
  const absl::Status status = transport_->Listen(central_->address(), &seen).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(central_->address()));
}

TEST_P(ControlChannel, NobodyThereIsUnavailable) {
  const std::string address = central_->address();
  central_.reset();
  WorkerRecorder seen;
  const absl::Status status = transport_->Connect(address, 300, &seen).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no central answers at " + address));
  EXPECT_FALSE(seen.closed());
}

TEST_P(ControlChannel, DialsUntilCentralIsThere) {
  const std::string address = central_->address();
  central_.reset();
  WorkerRecorder seen;
  std::unique_ptr<WorkerControl> worker;
  std::thread dial([&] {
    absl::StatusOr<std::unique_ptr<WorkerControl>> made =
        transport_->Connect(address, kTimeoutMs, &seen);
    if (made.ok()) worker = *std::move(made);
  });
  absl::StatusOr<std::unique_ptr<CentralControl>> central =
      transport_->Listen(address, &central_seen_);
  dial.join();
  ASSERT_TRUE(central.ok()) << central.status();
  ASSERT_NE(worker, nullptr);
  ASSERT_TRUE(worker->Send(HelloOf("late")).ok());
  EXPECT_TRUE(central_seen_.WaitForJoined(1).has_value());
  worker.reset();
}

TEST_P(ControlChannel, ManyThreadsSendAndEndsRace) {
  for (int round = 0; round < 10; ++round) {
    WorkerRecorder seen;
    ConnectionId id;
    std::unique_ptr<WorkerControl> worker = Join(&seen, &id);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&worker] {
        for (int i = 0; i < 50; ++i) (void)worker->Send(StageReady{Generation(i)});
      });
      threads.emplace_back([this, id] {
        for (int i = 0; i < 50; ++i) (void)central_->Send(id, RunUntil{Generation(1), Sequence(i)});
      });
    }
    threads.emplace_back([this, id, round] {
      if (round % 2 == 0) central_->Close(id);
    });
    threads.emplace_back([&worker, round] {
      if (round % 3 != 0) worker->Close();
    });
    for (std::thread& thread : threads) thread.join();
    worker.reset();
    EXPECT_FALSE(seen.after_close());
    EXPECT_NE(central_seen_.WaitForGone(id).code(), absl::StatusCode::kInternal);
  }
}

TEST(LoopbackControl, BreakIsSeenByBothEnds) {
  LoopbackControl transport;
  CentralRecorder central_seen;
  const auto central = transport.Listen("x:0", &central_seen).value();
  EXPECT_EQ(central->address(), "x:1");
  WorkerRecorder seen;
  const auto worker = transport.Connect("x:1", 0, &seen).value();
  ASSERT_TRUE(worker->Send(HelloOf("w")).ok());
  const std::optional<ConnectionId> id = central_seen.WaitForJoined(1);
  ASSERT_TRUE(id.has_value());
  transport.Break(*id);
  EXPECT_EQ(central_seen.WaitForGone(*id).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(seen.WaitForClosed().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace runnel::control_channel_test
