// A control stream outlives its connection: nothing is lost, nothing comes twice.

#include <atomic>
#include <future>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/link/event_loop.h"
#include "proto/transport/link/port_probe.h"
#include "tests/transport/control_recorders.h"
#include "tests/transport/tcp_proxy.h"

namespace runnel::control_resume_test {
namespace {

using ::testing::HasSubstr;
using Mode = TcpProxy::Mode;

constexpr int64_t kTimeoutMs = 20'000;

// Keeps broken streams.
class Keeping final : public CentralControlObserver, public Awaited {
 public:
  void OnJoined(ConnectionId id) override { recorder.OnJoined(id); }
  void OnMessage(ConnectionId id, WorkerMessage message) override {
    if (std::holds_alternative<Heartbeat>(message)) {
      std::lock_guard<std::mutex> lock(mutex_);
      ++heartbeats;
      changed_.notify_all();
    } else {
      recorder.OnMessage(id, std::move(message));
    }
  }
  bool OnBroken(ConnectionId, const absl::Status&) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++broken_;
    changed_.notify_all();
    return keeps;
  }
  void OnResumed(ConnectionId) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++resumed_;
    changed_.notify_all();
  }
  void OnGone(ConnectionId id, const absl::Status& status) override { recorder.OnGone(id, status); }

  bool WaitForHeartbeats(int count) {
    return WaitFor([&] { return heartbeats >= count; });
  }
  bool WaitForBroken(int count) {
    return WaitFor([&] { return broken_ >= count; });
  }
  bool WaitForResumed(int count) {
    return WaitFor([&] { return resumed_ >= count; });
  }

  CentralRecorder recorder;
  std::atomic<int> heartbeats = 0;
  std::atomic<bool> keeps = true;

 private:
  int broken_ = 0;
  int resumed_ = 0;
};

// What a worker tells people.
class Lines final : public Logger, public Awaited {
 public:
  void Log(Severity, absl::string_view line) override {
    std::lock_guard<std::mutex> lock(mutex_);
    text_ += std::string(line) + "\n";
    changed_.notify_all();
  }
  bool WaitForText(const std::string& text) {
    return WaitFor([&] { return text_.find(text) != std::string::npos; });
  }
  std::string text() {
    std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

 private:
  std::string text_;
};

class ControlResume : public ::testing::Test {
 protected:
  explicit ControlResume(int64_t keepalive_ms = 200) : keepalive_ms_(keepalive_ms) {}
  GrpcControlOptions Options() {
    GrpcControlOptions options;
    options.keepalive_ms = keepalive_ms_;
    options.keepalive_timeout_ms = 300;
    options.close_timeout_ms = 500;
    options.logger = &lines_;
    return options;
  }
  void Join() {
    worker_ = transport_->Connect(proxy_.address(), kTimeoutMs, &worker_seen_).value();
    ASSERT_TRUE(worker_->Send(HelloOf("w")).ok());
    const std::optional<ConnectionId> id = seen_.recorder.WaitForJoined(1);
    ASSERT_TRUE(id.has_value());
    id_ = *id;
    ASSERT_TRUE(central_->Send(id_, Welcome{DeviceId(0)}).ok());
    ASSERT_TRUE(worker_seen_.WaitForMessages(1));
  }
  void ExpectSequences(int64_t count) {
    ASSERT_TRUE(seen_.recorder.WaitForMessages(id_, static_cast<size_t>(count) + 1));
    ASSERT_TRUE(worker_seen_.WaitForMessages(static_cast<size_t>(count) + 1));
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i) + 1;
      EXPECT_EQ(std::get<BarrierReached>(seen_.recorder.messages(id_)[at]).sequence, Sequence(i));
      EXPECT_EQ(std::get<RunUntil>(worker_seen_.messages()[at]).limit, Sequence(i));
    }
  }
  void SendSequences(int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      ASSERT_TRUE(worker_->Send(BarrierReached{Generation(1), Sequence(i)}).ok());
      ASSERT_TRUE(central_->Send(id_, RunUntil{Generation(1), Sequence(i)}).ok());
    }
  }

  const int64_t keepalive_ms_;
  Lines lines_;
  Keeping seen_;
  WorkerRecorder worker_seen_;
  const std::unique_ptr<ControlTransport> transport_ = MakeGrpcControl(Options());
  std::unique_ptr<CentralControl> central_ = transport_->Listen("127.0.0.1:0", &seen_).value();
  TcpProxy proxy_{central_->address()};
  std::unique_ptr<WorkerControl> worker_;
  ConnectionId id_;
};

TEST_F(ControlResume, WhatIsSentWhileTheConnectionIsBrokenArrivesOnce) {
  Join();
  int64_t sent = 0;
  for (int round = 1; round <= 3; ++round) {
    SendSequences(sent, sent + 40);
    proxy_.Set(Mode::kReset);
    SendSequences(sent + 40, sent + 80);
    ASSERT_TRUE(seen_.WaitForBroken(round));
    SendSequences(sent + 80, sent + 100);
    sent += 100;
    proxy_.Set(Mode::kPass);
    ASSERT_TRUE(seen_.WaitForResumed(round));
  }
  ExpectSequences(sent);
  EXPECT_FALSE(worker_seen_.closed());
  worker_.reset();
  EXPECT_TRUE(seen_.recorder.WaitForGone(id_).ok()) << "the end in order is that of the stream";
  EXPECT_FALSE(seen_.recorder.broken_rule());
}

// A state is under way, in both lanes of both directions.
TEST_F(ControlResume, AStateThatIsUnderWayArrivesWhole) {
  Join();
  Snapshot snapshot{Generation(3), Sequence(100), {}};
  TensorData tensor{"0.weight", DType::kFloat32, {1'250, 1'000}, std::string(5'000'000, '\0')};
  for (size_t i = 0; i < tensor.bytes.size(); i += 97) tensor.bytes[i] = static_cast<char>(i % 251);
  for (int layer = 0; layer < 4; ++layer) snapshot.state.layers.push_back({layer, {tensor}, {}});
  ASSERT_TRUE(worker_->Send(snapshot).ok());
  for (int round = 1; round <= 3; ++round) {
    const int64_t before = central_->Transfer(id_).received_bytes;
    ASSERT_TRUE(worker_->Send(StageReady{Generation(round)}).ok());
    ASSERT_TRUE(seen_.recorder.WaitForMessages(id_, static_cast<size_t>(round) + 1));
    proxy_.Set(Mode::kReset);
    ASSERT_TRUE(seen_.WaitForBroken(round));
    EXPECT_GE(central_->Transfer(id_).received_bytes, before);
    proxy_.Set(Mode::kPass);
    ASSERT_TRUE(seen_.WaitForResumed(round));
  }
  ASSERT_TRUE(seen_.recorder.WaitForMessages(id_, 5));
  bool came = false;
  for (const WorkerMessage& message : seen_.recorder.messages(id_)) {
    const auto* whole = std::get_if<Snapshot>(&message);
    if (whole == nullptr) continue;
    came = true;
    EXPECT_TRUE(whole->state == snapshot.state);
  }
  EXPECT_TRUE(came);
}

// Nobody says that the connection is dead: pings find it out.
TEST_F(ControlResume, ASilentConnectionIsReplaced) {
  Join();
  SendSequences(0, 20);
  ExpectSequences(20);
  proxy_.Set(Mode::kSwallow);
  SendSequences(20, 40);
  ASSERT_TRUE(seen_.WaitForBroken(1));
  proxy_.Set(Mode::kPass);
  ASSERT_TRUE(seen_.WaitForResumed(1));
  SendSequences(40, 60);
  ExpectSequences(60);
}

TEST_F(ControlResume, AStreamThatIsClosedMeanwhileIsNotTakenUpAgain) {
  Join();
  proxy_.Set(Mode::kReset);
  ASSERT_TRUE(seen_.WaitForBroken(1));
  central_->Close(id_);
  EXPECT_EQ(seen_.recorder.WaitForGone(id_).code(), absl::StatusCode::kUnavailable);
  proxy_.Set(Mode::kPass);
  const absl::Status end = worker_seen_.WaitForClosed();
  EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(end.message()), HasSubstr("does not know this stream"));
}

TEST_F(ControlResume, WhereNobodyKeepsItAStreamEndsWithItsConnection) {
  seen_.keeps = false;
  Join();
  proxy_.Set(Mode::kReset);
  EXPECT_EQ(seen_.recorder.WaitForGone(id_).code(), absl::StatusCode::kUnavailable);
}

TEST_F(ControlResume, AWorkerThatClosesWhileItIsBrokenEnds) {
  Join();
  proxy_.Set(Mode::kReset);
  ASSERT_TRUE(seen_.WaitForBroken(1));
  worker_.reset();
  EXPECT_TRUE(worker_seen_.closed());
}

TEST_F(ControlResume, HeartbeatsAreNotKept) {
  Join();
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(worker_->Send(Heartbeat{}).ok());
  SendSequences(0, 1);
  ExpectSequences(1);
  EXPECT_GE(seen_.heartbeats, 1);
  EXPECT_LE(seen_.heartbeats, 1'000);
}

// No pings: what is found is found by the rhythm of heartbeats and their answers.
class ControlSilence : public ControlResume {
 protected:
  ControlSilence() : ControlResume(/*keepalive_ms=*/3'600'000) {}
  ~ControlSilence() override {
    beats_.Stop();
    if (thread_.joinable()) thread_.join();
  }
  void SendHeartbeats() {
    Beat();
    thread_ = std::thread([this] { beats_.Run(); });
  }

 private:
  void Beat() {
    worker_->Send(Heartbeat{}).IgnoreError();
    beats_.PostAfter(20'000'000, [this] { Beat(); });
  }

  MonotonicClock clock_;
  ThreadLoop beats_{&clock_};
  std::thread thread_;
};

TEST_F(ControlSilence, IsSaidAndEndsTheConnection) {
  Join();
  SendHeartbeats();
  // Until it knows the rhythm a worker says nothing.
  ASSERT_TRUE(seen_.WaitForHeartbeats(20));
  EXPECT_EQ(lines_.text(), "");
  proxy_.Set(Mode::kSwallow);
  ASSERT_TRUE(lines_.WaitForText("central at " + proxy_.address() + " does not answer: nothing"));
  // The worker gives the connection up and makes another one.
  const int taken = proxy_.taken();
  while (proxy_.taken() == taken) usleep(500);
  proxy_.Set(Mode::kPass);
  ASSERT_TRUE(seen_.WaitForResumed(1));
  ASSERT_TRUE(lines_.WaitForText("central at " + proxy_.address() + " answers again, "));
  SendSequences(0, 20);
  ExpectSequences(20);
}

// ---- who answers at a port

struct HeardAnswer final : Awaited {
  void Set(PortAnswer answer) {
    std::lock_guard<std::mutex> lock(mutex_);
    answer_ = answer;
    changed_.notify_all();
  }
  std::optional<PortAnswer> answer_;
};

PortAnswer AnswerOf(PortProbe& probe, const std::string& host, int port) {
  HeardAnswer heard;
  probe.Ask(host, port, 300, [&heard](PortAnswer answer) { heard.Set(answer); });
  EXPECT_TRUE(heard.WaitFor([&] { return heard.answer_.has_value(); }));
  return heard.answer_.value_or(PortAnswer::kNone);
}

PortAnswer AnswerOf(const std::string& host, int port) {
  PortProbe probe;
  return AnswerOf(probe, host, port);
}

PortProbe::Target TargetAt(uint32_t address) {
  PortProbe::Target target;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&target.address);
  v4->sin_family = AF_INET;
  v4->sin_addr.s_addr = htonl(address);
  target.bytes = sizeof(*v4);
  return target;
}

// On loopback; does not listen.
int BoundSocket(sockaddr_in* own) {
  const int bound = socket(AF_INET, SOCK_STREAM, 0);
  *own = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  EXPECT_EQ(bind(bound, reinterpret_cast<sockaddr*>(own), sizeof(*own)), 0);
  socklen_t bytes = sizeof(*own);
  getsockname(bound, reinterpret_cast<sockaddr*>(own), &bytes);
  return bound;
}

int ListeningSocket(int* port) {
  sockaddr_in own;
  const int listener = BoundSocket(&own);
  EXPECT_EQ(listen(listener, 16), 0);
  *port = ntohs(own.sin_port);
  return listener;
}

// As long as a name server says nothing, the questions about its name are without an answer, and
// all others have theirs.
TEST(PortProbe, ASlowNameHoldsUpNobodyElse) {
  std::promise<void> answers;
  std::atomic<int> looked_up{0};
  {
    PortProbe probe([&, answered = answers.get_future().share()](const std::string&) {
      ++looked_up;
      answered.wait();
      return std::vector<PortProbe::Target>{TargetAt(INADDR_LOOPBACK)};
    });
    int port = 0;
    const int listener = ListeningSocket(&port);
    HeardAnswer slow;
    probe.Ask("slow.lan", port, 60'000, [&slow](PortAnswer answer) { slow.Set(answer); });
    EXPECT_EQ(AnswerOf(probe, "127.0.0.1", port), PortAnswer::kAnswered);
    EXPECT_EQ(AnswerOf(probe, "slow.lan", port), PortAnswer::kNone) << "until its deadline";
    EXPECT_FALSE(slow.answer_.has_value());
    answers.set_value();
    EXPECT_TRUE(slow.WaitFor([&] { return slow.answer_.has_value(); }));
    EXPECT_EQ(slow.answer_, PortAnswer::kAnswered);
    EXPECT_EQ(AnswerOf(probe, "slow.lan", port), PortAnswer::kAnswered);
    close(listener);
  }
  EXPECT_EQ(looked_up, 1) << "what a name stands for is kept";
}

TEST(PortProbe, AllAddressesOfANameAreTried) {
  int port = 0;
  const int listener = ListeningSocket(&port);
  // Nobody listens at the first one.
  PortProbe probe([](const std::string&) {
    return std::vector<PortProbe::Target>{TargetAt(INADDR_LOOPBACK + 1), TargetAt(INADDR_LOOPBACK)};
  });
  EXPECT_EQ(AnswerOf(probe, "two.lan", port), PortAnswer::kAnswered);
  close(listener);
  EXPECT_EQ(AnswerOf(probe, "two.lan", port), PortAnswer::kRefused);
}

TEST(PortProbe, TellsWhoIsThere) {
  sockaddr_in own;
  const int listener = BoundSocket(&own);
  const int port = ntohs(own.sin_port);
  EXPECT_EQ(AnswerOf("127.0.0.1", port), PortAnswer::kRefused) << "bound and deaf";
  ASSERT_EQ(listen(listener, 1), 0);
  EXPECT_EQ(AnswerOf("127.0.0.1", port), PortAnswer::kAnswered) << "nobody accepts";
  close(listener);
  EXPECT_EQ(AnswerOf("127.0.0.1", port), PortAnswer::kRefused);
  EXPECT_EQ(AnswerOf("no such host", 9), PortAnswer::kNone);
}

// A kernel whose queue of connections is full says nothing, as a network that swallows everything.
TEST(PortProbe, SilenceIsNoAnswer) {
  sockaddr_in own;
  const int listener = BoundSocket(&own);
  ASSERT_EQ(listen(listener, 0), 0);
  std::vector<int> callers;
  for (int i = 0; i < 4; ++i) {
    callers.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    (void)connect(callers.back(), reinterpret_cast<sockaddr*>(&own), sizeof(own));
  }
  EXPECT_EQ(AnswerOf("127.0.0.1", ntohs(own.sin_port)), PortAnswer::kNone);
  for (const int caller : callers) close(caller);
  close(listener);
}

}  // namespace
}  // namespace runnel::control_resume_test
