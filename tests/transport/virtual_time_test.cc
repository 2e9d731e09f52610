// Loops and control streams in virtual time: what a simulation of the whole cluster stands on.

#include "gtest/gtest.h"
#include "tests/support/in_process/simulated_control.h"
#include "tests/support/in_process/virtual_loop.h"

namespace runnel::virtual_time_test {
namespace {

TEST(VirtualLoop, TasksRunInOrderAndTimersAtTheirTime) {
  SimulatedNetwork network(InProcessFaults{});
  VirtualLoop loop(&network);
  std::string seen;
  loop.PostAfter(20, [&] { seen += "c"; });
  loop.Post([&] {
    seen += "a";
    loop.Post([&] { seen += "b"; });
  });
  network.RunUntil(19);
  EXPECT_EQ(seen, "ab");
  network.RunUntil(20);
  EXPECT_EQ(seen, "abc");
}

TEST(VirtualLoop, WhatComesWhileItIsStoppedRunsInOrderAfterwards) {
  SimulatedNetwork network(InProcessFaults{});
  VirtualLoop loop(&network);
  std::string seen;
  loop.PostAfter(10, [&] { seen += "a"; });
  loop.PostAfter(20, [&] { seen += "b"; });
  loop.SetFrozen(true);
  network.RunUntil(30);
  EXPECT_EQ(seen, "");
  loop.SetFrozen(false);
  loop.Post([&] { seen += "c"; });
  network.RunUntil(30);
  EXPECT_EQ(seen, "abc");
}

TEST(VirtualLoop, AfterTheEndNothingRunsAndNothingIsHeld) {
  SimulatedNetwork network(InProcessFaults{});
  VirtualLoop loop(&network);
  const auto held = std::make_shared<int>();
  loop.Post([held] { FAIL() << "it has ended"; });
  loop.End();
  EXPECT_EQ(held.use_count(), 1);
  loop.Post([held] { FAIL() << "it has ended"; });
  network.RunUntil(100);
}

// A worker's and central's ends of streams, which note what they hear.
struct WorkerEnd final : public WorkerControlObserver {
  void OnMessage(CentralMessage message) override {
    if (const auto* grant = std::get_if<RunUntil>(&message))
      seen += std::to_string(grant->limit.value()) + " ";
    if (std::holds_alternative<PrepareStage>(message)) seen += "state ";
  }
  void OnClosed(const absl::Status& status) override { seen += status.ok() ? "closed" : "lost"; }
  std::string seen;
};
struct CentralEnd final : public CentralControlObserver {
  void OnJoined(ConnectionId joined) override { id = joined; }
  void OnMessage(ConnectionId, WorkerMessage message) override {
    if (const auto* reached = std::get_if<BarrierReached>(&message))
      seen += std::to_string(reached->sequence.value()) + " ";
  }
  bool OnBroken(ConnectionId, const absl::Status&) override {
    seen += "broken ";
    return true;
  }
  void OnResumed(ConnectionId) override { seen += "resumed "; }
  void OnGone(ConnectionId, const absl::Status& status) override {
    seen += status.ok() ? "gone" : "lost";
  }
  ConnectionId id;
  std::string seen;
};

class SimulatedControlTest : public ::testing::Test {
 protected:
  SimulatedControlTest() {
    central_ = at_central_->Listen("10.0.0.1:7000", &central_end_).value();
    worker_ = at_worker_->Connect("10.0.0.1:7000", 0, &worker_end_).value();
    EXPECT_TRUE(worker_->Send(WorkerHello{}).ok());
    network_.RunUntil(kSecond);
  }
  void Say(int64_t sequence) {
    EXPECT_TRUE(worker_->Send(BarrierReached{Generation(1), Sequence(sequence)}).ok());
  }
  void Grant(int64_t limit) {
    EXPECT_TRUE(central_->Send(central_end_.id, RunUntil{Generation(1), Sequence(limit)}).ok());
  }

  static constexpr int64_t kSecond = 1'000'000'000;
  SimulatedNetwork network_{InProcessFaults{}};
  SimulatedControl control_{
      &network_,
      {.seed = 3, .min_delay_ns = 1000, .max_delay_ns = 1'000'000, .max_state_ns = 100'000'000}};
  std::unique_ptr<ControlTransport> at_central_ = control_.NewTransport("central", "10.0.0.1");
  std::unique_ptr<ControlTransport> at_worker_ = control_.NewTransport("w", "10.0.0.2");
  CentralEnd central_end_;
  WorkerEnd worker_end_;
  std::unique_ptr<CentralControl> central_;
  std::unique_ptr<WorkerControl> worker_;
};

TEST_F(SimulatedControlTest, MessagesKeepTheirOrderAndStatesAreOvertaken) {
  ASSERT_TRUE(central_->Send(central_end_.id, PrepareStage{}).ok());
  for (int i = 0; i < 40; ++i) {
    Say(i);
    Grant(i);
  }
  network_.RunUntil(2 * kSecond);
  std::string expected;
  for (int i = 0; i < 40; ++i) expected += std::to_string(i) + " ";
  EXPECT_EQ(central_end_.seen, expected);
  EXPECT_EQ(worker_end_.seen, expected + "state ");
}

TEST_F(SimulatedControlTest, ABrokenConnectionLosesNothingAndRepeatsNothing) {
  for (int i = 0; i < 3; ++i) Say(i);
  control_.BreakConnections("w");
  Say(3);
  Grant(7);
  network_.RunUntil(3 * kSecond);
  EXPECT_EQ(central_end_.seen, "broken resumed 0 1 2 3 ");
  EXPECT_EQ(worker_end_.seen, "7 ");
  EXPECT_GT(control_.most_kept(), 0u) << "nobody has acknowledged so few";
}

TEST_F(SimulatedControlTest, WhatDoesNotPassComesWhenItDoes) {
  network_.SetCut("w", true);
  Say(1);
  network_.RunUntil(2 * kSecond);
  EXPECT_EQ(central_end_.seen, "");
  network_.SetCut("w", false);
  control_.Flush();
  EXPECT_EQ(central_end_.seen, "1 ");
}

TEST_F(SimulatedControlTest, AWorkerThatDiesIsHeardOfByItsBrokenConnection) {
  Say(1);
  network_.RunUntil(2 * kSecond);
  control_.LoseNode("w");
  network_.RunUntil(3 * kSecond);
  EXPECT_EQ(central_end_.seen, "1 broken ");
  central_->Close(central_end_.id);
  network_.RunUntil(4 * kSecond);
  EXPECT_EQ(central_end_.seen, "1 broken gone");
  EXPECT_EQ(worker_end_.seen, "") << "nobody is there to hear";
}

TEST_F(SimulatedControlTest, ACentralThatDiesIsGivenUpWhenNobodyListens) {
  control_.LoseNode("central");
  network_.RunUntil(2 * kSecond);
  EXPECT_EQ(worker_end_.seen, "");
  network_.RunUntil(5 * kSecond);
  EXPECT_EQ(worker_end_.seen, "lost");
  EXPECT_FALSE(at_worker_->Connect("10.0.0.1:7000", 0, &worker_end_).ok());
}

TEST_F(SimulatedControlTest, WhoClosesInOrderIsHeardToTheEnd) {
  Grant(5);
  central_->Close(central_end_.id);
  network_.RunUntil(2 * kSecond);
  EXPECT_EQ(worker_end_.seen, "5 closed");
  EXPECT_EQ(central_end_.seen, "gone");
}

// ---- the network

struct FrameEnd final : public ConnectionObserver {
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame frame) override { seen += std::to_string(frame.header.sequence.value()); }
  void OnClosed(const absl::Status& status) override {
    seen += absl::IsDataLoss(status) ? "damaged" : status.ok() ? "closed" : "lost";
  }
  std::string seen;
};

struct Link {
  explicit Link(const InProcessFaults& faults) : network(faults) {
    listener = b->Listen("10.0.0.2:1", [this](std::shared_ptr<Connection> connection) {
                  at_b = std::move(connection);
                  return Accepted{&b_end, {}};
                }).value();
    at_a = a->Dial("10.0.0.2:1", &a_end, {}).value();
    network.RunUntil(1000);
  }
  void Send(int64_t sequence) {
    Frame frame;
    frame.header.sequence = Sequence(sequence);
    SealFrame(frame);
    EXPECT_TRUE(at_a->Send(frame).ok());
  }
  SimulatedNetwork network;
  std::unique_ptr<Transport> a = network.NewTransport("a");
  std::unique_ptr<Transport> b = network.NewTransport("b");
  FrameEnd a_end, b_end;
  std::shared_ptr<Connection> at_b, at_a;
  std::unique_ptr<Listener> listener;
};

TEST(SimulatedNetworkFaults, WhatIsOnItsWayToACutNodeWaitsInOrder) {
  Link link({.seed = 1, .min_delay_ns = 10, .max_delay_ns = 100});
  link.network.SetCut("b", true);
  link.Send(1);
  link.network.RunUntil(5000);
  link.Send(2);
  link.network.RunUntil(5005);
  EXPECT_EQ(link.b_end.seen, "");
  link.network.SetCut("b", false);
  link.Send(3);
  link.network.RunUntil(9000);
  EXPECT_EQ(link.b_end.seen, "123");
}

TEST(SimulatedNetworkFaults, ThePeersOfALostNodeHearOfItLater) {
  Link link({.seed = 1, .min_delay_ns = 10, .max_delay_ns = 100});
  link.network.LoseNode("b");
  EXPECT_EQ(link.a_end.seen, "");
  link.network.RunUntil(2000);
  EXPECT_EQ(link.a_end.seen, "lost");
}

TEST(SimulatedNetworkFaults, DamagedFramesEndTheirConnection) {
  Link link({.seed = 1, .damage_one_in = 1});
  link.Send(1);
  link.network.RunUntil(2000);
  EXPECT_EQ(link.b_end.seen, "damaged");
}

}  // namespace
}  // namespace runnel::virtual_time_test
