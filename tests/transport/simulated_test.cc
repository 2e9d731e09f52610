#include "tests/support/in_process/simulated.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/transport/test_frames.h"

namespace runnel::simulated_test {
namespace {

constexpr char kAnyPort[] = "127.0.0.1:0";

// Writes what happens, and when, into a log.
class Logger final : public ConnectionObserver {
 public:
  Logger(SimulatedNetwork* network, std::string name, std::vector<std::string>* log)
      : network_(network), name_(std::move(name)), log_(log) {}
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame frame) override {
    EXPECT_EQ(WhatIsWrongWith(frame), "");
    log_->push_back(
        absl::StrCat(network_->now_ns(), " ", name_, " ", frame.header.sequence.value()));
  }
  void OnClosed(const absl::Status& status) override {
    log_->push_back(absl::StrCat(network_->now_ns(), " ", name_, " closed ",
                                 absl::StatusCodeToString(status.code())));
  }

 private:
  SimulatedNetwork* const network_;
  const std::string name_;
  std::vector<std::string>* const log_;
};

// Nodes a and b with `links` connections from a to b.
class Pair {
 public:
  Pair(const InProcessFaults& faults, int links, const LinkShaping& shaping = {})
      : network_(faults) {
    listener_ = *b_->Listen(kAnyPort, [this](std::shared_ptr<Connection> connection) {
      auto& logger = NewLogger(absl::StrCat("b", accepted_.size()));
      accepted_.push_back(std::move(connection));
      return Accepted{&logger, {}};
    });
    for (int i = 0; i < links; ++i) Dial(shaping);
  }

  void Dial(const LinkShaping& shaping = {}) {
    auto& logger = NewLogger(absl::StrCat("a", dialled_.size()));
    dialled_.push_back(*a_->Dial(listener_->address(), &logger, shaping));
  }
  SimulatedNetwork& network() { return network_; }
  std::vector<std::shared_ptr<Connection>>& dialled() { return dialled_; }
  std::vector<std::shared_ptr<Connection>>& accepted() { return accepted_; }
  const std::vector<std::string>& log() const { return log_; }
  void RunAll() {
    while (network_.Step()) {
    }
  }

 private:
  Logger& NewLogger(std::string name) {
    loggers_.push_back(std::make_unique<Logger>(&network_, std::move(name), &log_));
    return *loggers_.back();
  }

  std::vector<std::string> log_;
  SimulatedNetwork network_;
  std::vector<std::unique_ptr<Logger>> loggers_;
  std::unique_ptr<Transport> a_ = network_.NewTransport("a");
  std::unique_ptr<Transport> b_ = network_.NewTransport("b");
  std::unique_ptr<Listener> listener_;
  std::vector<std::shared_ptr<Connection>> dialled_, accepted_;
};

TEST(SimulatedNetwork, EventsRunInOrderOfTimeThenOfScheduling) {
  SimulatedNetwork network(InProcessFaults{});
  std::vector<int> ran;
  network.ScheduleAt(20, [&] { ran.push_back(3); });
  network.ScheduleAt(10, [&] {
    ran.push_back(1);
    network.ScheduleAt(5, [&] { ran.push_back(2); });  // the past: now
    EXPECT_EQ(network.clock().NowNanos(), 10);
  });
  network.ScheduleAt(20, [&] { ran.push_back(4); });
  network.ScheduleAt(31, [&] { ran.push_back(5); });
  network.RunUntil(30);
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(network.now_ns(), 30);
  EXPECT_TRUE(network.Step());
  EXPECT_EQ(network.now_ns(), 31);
  EXPECT_FALSE(network.Step());
}

TEST(SimulatedNetwork, ShapedFramesArriveExactlyWhenTheyShould) {
  LinkShaping shaping;
  shaping.megabits_per_second = 8;  // 1 us a byte
  shaping.delay_ms = 1;
  Pair pair(InProcessFaults{}, 1, shaping);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pair.dialled()[0]->Send(TestFrame(FrameKind::kInput, i, 136)).ok());
  }
  EXPECT_EQ(pair.dialled()[0]->queued_bytes(), 600);
  pair.network().RunUntil(250'000);
  EXPECT_EQ(pair.dialled()[0]->queued_bytes(), 400);
  pair.RunAll();
  EXPECT_EQ(pair.log(), (std::vector<std::string>{"1200000 b0 0", "1400000 b0 1", "1600000 b0 2"}));
}

std::vector<std::string> Trace(uint64_t seed) {
  InProcessFaults faults;
  faults.seed = seed;
  faults.min_delay_ns = 1000;
  faults.max_delay_ns = 900'000;
  faults.min_life_ns = 500'000;
  faults.max_life_ns = 5'000'000;
  Pair pair(faults, 4);
  for (int i = 0; i < 30; ++i) {
    pair.network().ScheduleAt(i * 100'000, [&pair, i] {
      for (auto& connection : pair.dialled()) {
        connection->Send(TestFrame(FrameKind::kInput, i, 100)).IgnoreError();
      }
      for (auto& connection : pair.accepted()) {
        connection->Send(TestFrame(FrameKind::kGradient, i, 50)).IgnoreError();
      }
    });
  }
  pair.RunAll();
  return pair.log();
}

TEST(SimulatedNetwork, IsAFunctionOfItsSeed) {
  const std::vector<std::string> trace = Trace(11);
  EXPECT_GT(trace.size(), 40u);
  EXPECT_EQ(Trace(11), trace);
  EXPECT_NE(Trace(12), trace);
}

TEST(SimulatedNetwork, ReordersBetweenConnectionsNeverWithin) {
  const std::vector<std::string> trace = Trace(3);
  std::map<std::string, int> next;
  bool reordered = false;
  int last = 0;
  for (const std::string& line : trace) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[2] == "closed") continue;
    const int sequence = std::stoi(words[2]);
    EXPECT_GE(sequence, next[words[1]]) << line;
    next[words[1]] = sequence + 1;
    reordered |= sequence < last;
    last = sequence;
  }
  EXPECT_TRUE(reordered);
}

TEST(SimulatedNetwork, EveryConnectionIsLostAtBothEnds) {
  int closed = 0;
  for (const std::string& line : Trace(5)) {
    if (line.find("closed") == line.npos) continue;
    ++closed;
    EXPECT_NE(line.find("UNAVAILABLE"), line.npos) << line;
  }
  EXPECT_EQ(closed, 8);
}

TEST(SimulatedNetwork, ConnectionsOfANodeBreakOnDemand) {
  Pair pair(InProcessFaults{}, 2);
  pair.RunAll();
  ASSERT_TRUE(pair.dialled()[0]->Send(TestFrame(FrameKind::kInput, 0, 10)).ok());
  pair.network().BreakConnections("nobody");
  EXPECT_TRUE(pair.log().empty());
  pair.network().BreakConnections("b");
  EXPECT_EQ(pair.log().size(), 4u);
  pair.RunAll();  // what was on the way is lost
  EXPECT_EQ(pair.log().size(), 4u);
  EXPECT_TRUE(absl::IsUnavailable(pair.dialled()[0]->Send(TestFrame(FrameKind::kInput, 1, 10))));
  pair.network().SetReachable("b", false);
  pair.Dial();
  pair.RunAll();
  EXPECT_EQ(pair.log().back(), "0 a2 closed UNAVAILABLE");
  pair.network().SetReachable("b", true);
  pair.Dial();
  ASSERT_TRUE(pair.dialled()[3]->Send(TestFrame(FrameKind::kInput, 7, 10)).ok());
  pair.RunAll();
  EXPECT_EQ(pair.log().back(), "0 b2 7");
}

}  // namespace
}  // namespace runnel::simulated_test
