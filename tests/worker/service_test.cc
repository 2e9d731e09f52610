// A worker that outlives runs and centrals, against centrals of the test's own.

#include "worker/service.h"

#include <mutex>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/support/in_process/loopback.h"
#include "tests/support/in_process/loopback_control.h"
#include "tests/transport/control_recorders.h"

namespace runnel::service_test {
namespace {

using ::testing::HasSubstr;

constexpr char kAddress[] = "127.0.0.1:7000";
const ProbePiece kPing = {.count = 1};  // a worker that takes part answers

class ServiceTest : public ::testing::Test {
 protected:
  ~ServiceTest() override {
    if (!thread_.joinable()) return;
    service_->Stop();
    service_->Stop();
    thread_.join();
  }

  void Start(bool once = false) {
    ServiceOptions options;
    options.once = once;
    options.daemon.central_address = kAddress;
    options.daemon.name = "w";
    options.daemon.device_id = "an id";
    options.daemon.incarnation = 77;
    if (has_limits_) {
      options.held_by = [this] {
        const std::lock_guard<std::mutex> lock(limit_mutex_);
        return limit_;
      };
    }
    service_ = std::make_unique<WorkerService>(
        options, Daemon::Parts{transport_.get(), &control_, &clock_, &logger_});
    thread_ = std::thread([this] { result_ = service_->Run(); });
  }
  // The n-th time that it dialled, after its hello.
  ConnectionId Dialled(size_t n) {
    const ConnectionId id = seen_->WaitForJoined(n).value_or(ConnectionId());
    EXPECT_TRUE(seen_->WaitForMessages(id, 1)) << "no hello at dial " << n;
    return id;
  }
  void Say(ConnectionId id, CentralMessage message) {
    EXPECT_TRUE(central_->Send(id, std::move(message)).ok());
  }
  // The device's limit, from now on.
  void Hold(const std::string& reason) {
    {
      const std::lock_guard<std::mutex> lock(limit_mutex_);
      limit_ = reason;
    }
    if (service_ != nullptr) service_->CheckLimits();
  }
  absl::Status AwaitEnd() {
    thread_.join();
    return result_;
  }

  MonotonicClock clock_;
  NullLogger logger_;
  LoopbackControl control_;
  const std::unique_ptr<Transport> transport_ = MakeLoopbackTransport();
  std::unique_ptr<CentralRecorder> seen_ = std::make_unique<CentralRecorder>();
  std::unique_ptr<CentralControl> central_ = control_.Listen(kAddress, seen_.get()).value();
  std::unique_ptr<WorkerService> service_;
  bool has_limits_ = false;
  std::mutex limit_mutex_;
  std::string limit_;  // guarded by limit_mutex_
  std::thread thread_;
  absl::Status result_;
};

TEST_F(ServiceTest, OutlivesRunsAndCentrals) {
  Start();
  const ConnectionId first = Dialled(1);
  const auto hello = std::get<WorkerHello>(seen_->messages(first)[0]);
  EXPECT_EQ(hello.device_id, "an id");
  EXPECT_EQ(hello.incarnation, 77);
  Say(first, Welcome{DeviceId(0), "r", 1});
  Say(first, Release{});
  Say(Dialled(2), Welcome{DeviceId(0), "other", 1});
  // Central ends without a word, and another one listens where it was.
  central_.reset();
  auto next = std::make_unique<CentralRecorder>();
  central_ = control_.Listen(kAddress, next.get()).value();
  seen_ = std::move(next);
  Say(Dialled(1), Welcome{DeviceId(0), "other", 2});
}

TEST_F(ServiceTest, TakesNothingFromAnEarlierLife) {
  Start();
  const ConnectionId later = Dialled(1);
  Say(later, Welcome{DeviceId(0), "r", 2});
  Say(later, Release{});
  // The one that was stopped, and continues.
  const ConnectionId earlier = Dialled(2);
  Say(earlier, Welcome{DeviceId(0), "r", 1});
  ASSERT_FALSE(absl::IsInternal(seen_->WaitForGone(earlier))) << "it takes part";
  const ConnectionId again = Dialled(3);
  Say(again, Welcome{DeviceId(0), "r", 2});
  Say(again, kPing);
  EXPECT_TRUE(seen_->WaitForMessages(again, 2)) << "it takes part";
  Say(again, Release{});
  const ConnectionId other = Dialled(4);
  Say(other, Welcome{DeviceId(0), "another run", 1});
  Say(other, kPing);
  EXPECT_TRUE(seen_->WaitForMessages(other, 2));
}

TEST_F(ServiceTest, DialsAgainIfItIsRefusedForNow) {
  Start();
  Say(Dialled(1), Refused{"no seat", /*is_final=*/false});
  Say(Dialled(2), Refused{"another version", /*is_final=*/true});
  const absl::Status end = AwaitEnd();
  EXPECT_TRUE(absl::IsFailedPrecondition(end)) << end;
  EXPECT_THAT(std::string(end.message()), HasSubstr("another version"));
}

TEST_F(ServiceTest, LeavesARunWhenCentralReleasesIt) {
  Start();
  const ConnectionId id = Dialled(1);
  Say(id, Welcome{DeviceId(0), "r", 1});
  Say(id, kPing);
  ASSERT_TRUE(seen_->WaitForMessages(id, 2)) << "it takes part";
  service_->Stop();
  ASSERT_TRUE(seen_->WaitForMessages(id, 3));
  EXPECT_TRUE(std::holds_alternative<Leaving>(seen_->messages(id)[2]));
  Say(id, Release{});
  EXPECT_TRUE(AwaitEnd().ok());
  EXPECT_EQ(seen_->joined(), 1u);
}

TEST_F(ServiceTest, EndsAtOnceIfItTakesNoPart) {
  Start();
  Dialled(1);
  service_->Stop();
  EXPECT_TRUE(AwaitEnd().ok());
}

TEST_F(ServiceTest, OnceIsForOneRun) {
  Start(/*once=*/true);
  const ConnectionId id = Dialled(1);
  Say(id, Welcome{DeviceId(0), "r", 1});
  Say(id, Release{});
  EXPECT_TRUE(AwaitEnd().ok());
  Start(/*once=*/true);
  Say(Dialled(2), Refused{"no seat", /*is_final=*/false});
  EXPECT_TRUE(absl::IsFailedPrecondition(AwaitEnd())) << "nobody waits";
}

class LimitedServiceTest : public ServiceTest {
 protected:
  LimitedServiceTest() { has_limits_ = true; }
};

TEST_F(LimitedServiceTest, ALimitGivesTheStageAwayAndItsEndJoinsAgain) {
  Start();
  const ConnectionId id = Dialled(1);
  Say(id, Welcome{DeviceId(0), "r", 1});
  Say(id, kPing);
  ASSERT_TRUE(seen_->WaitForMessages(id, 2)) << "it takes part";
  Hold("the battery is low");
  ASSERT_TRUE(seen_->WaitForMessages(id, 3));
  const WorkerMessage last = seen_->messages(id)[2];
  ASSERT_TRUE(std::holds_alternative<Leaving>(last));
  EXPECT_EQ(std::get<Leaving>(last).reason, "the battery is low");
  Say(id, Release{});
  EXPECT_FALSE(absl::IsInternal(seen_->WaitForGone(id)));
  EXPECT_EQ(seen_->joined(), 1u) << "it is held";
  Hold("");
  const auto again = std::get<WorkerHello>(seen_->messages(Dialled(2))[0]);
  EXPECT_EQ(again.incarnation, 78)
      << "central refuses who has left its run and was not started again";
}

TEST_F(LimitedServiceTest, ADeviceThatIsHeldDoesNotDial) {
  Hold("it is too early");
  Start();
  EXPECT_EQ(seen_->joined(), 0u);
  Hold("");
  const ConnectionId id = Dialled(1);
  // One that waits for a run leaves at once.
  Hold("it is too late");
  EXPECT_FALSE(absl::IsInternal(seen_->WaitForGone(id)));
  service_->Stop();
  EXPECT_TRUE(AwaitEnd().ok());
}

TEST_F(LimitedServiceTest, OnceEndsWithTheLimit) {
  Hold("it is hot");
  Start(/*once=*/true);
  EXPECT_TRUE(AwaitEnd().ok());
  EXPECT_EQ(seen_->joined(), 0u);
}

}  // namespace
}  // namespace runnel::service_test
