#include "proto/transport/link/observer_gate.h"

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace runnel::observer_gate_test {
namespace {

class Observer final : public ConnectionObserver {
 public:
  absl::Status OnHeader(const FrameHeader&) override { return absl::NotFoundError("mine"); }
  void OnFrame(Frame) override {
    ++frames;
    if (on_frame) on_frame();
  }
  void OnClosed(const absl::Status& status) override {
    closed.push_back(status);
    if (on_closed) on_closed();
  }

  int frames = 0;
  std::vector<absl::Status> closed;
  std::function<void()> on_frame, on_closed;
};

TEST(ObserverGate, NothingComesAfterTheEnd) {
  Observer observer;
  ObserverGate gate(&observer);
  EXPECT_EQ(gate.Header({}), absl::NotFoundError("mine"));
  gate.Deliver({});
  gate.Closed(absl::DataLossError("first"));
  gate.Closed(absl::OkStatus());
  gate.Deliver({});
  gate.Closed(absl::OkStatus());
  EXPECT_TRUE(absl::IsCancelled(gate.Header({})));
  EXPECT_EQ(observer.frames, 1);
  EXPECT_EQ(observer.closed, std::vector<absl::Status>{absl::DataLossError("first")});
}

TEST(ObserverGate, ClosedWithinACallItDoesNotWaitForIt) {
  Observer observer;
  ObserverGate gate(&observer);
  observer.on_frame = [&] { gate.Closed(absl::OkStatus()); };
  gate.Deliver({});
  gate.Deliver({});
  EXPECT_EQ(observer.frames, 1);
  EXPECT_EQ(observer.closed.size(), 1u);
}

// Whoever lets go of a connection may destroy its observer afterwards: no call may still be
// running, not even the one that closed it.
TEST(ObserverGate, ClosedWaitsForWhoeverIsInside) {
  for (const bool inside_closed : {false, true}) {
    Observer observer;
    ObserverGate gate(&observer);
    std::atomic<bool> entered{false}, detaching{false}, left{false};
    const auto linger = [&] {
      entered = true;
      while (!detaching) std::this_thread::yield();
      // Long enough for a Closed that does not wait to get away.
      for (int i = 0; i < 2000; ++i) std::this_thread::yield();
      left = true;
    };
    (inside_closed ? observer.on_closed : observer.on_frame) = linger;
    std::thread transport([&] {
      if (inside_closed) {
        gate.Closed(absl::OkStatus());
      } else {
        gate.Deliver({});
      }
    });
    while (!entered) std::this_thread::yield();
    detaching = true;
    gate.Closed(absl::OkStatus());
    EXPECT_TRUE(left);
    EXPECT_EQ(observer.closed.size(), 1u);
    transport.join();
  }
}

}  // namespace
}  // namespace runnel::observer_gate_test
