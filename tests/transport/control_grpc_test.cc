// The control plane over gRPC against peers that are killed, stopped, stuck or hostile.

#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/transport/control/control_convert.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "tests/transport/child_process.h"
#include "tests/transport/control_recorders.h"
#include "tests/transport/http2_strangers.h"

namespace runnel::control_grpc_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20260102;
constexpr int64_t kTimeoutMs = 20'000;
// So long that no test sees it: what it waits for must come from elsewhere.
constexpr int64_t kNeverMs = 3'600'000;

// Ends are noticed by the connection only.
GrpcControlOptions WithoutKeepalive() {
  GrpcControlOptions options;
  options.keepalive_ms = kNeverMs;
  options.keepalive_timeout_ms = 500;
  options.close_timeout_ms = 500;
  return options;
}

class Served {
 public:
  explicit Served(const GrpcControlOptions& options)
      : transport_(MakeGrpcControl(options)),
        control_(transport_->Listen("127.0.0.1:0", &seen_).value()) {}

  CentralRecorder& seen() { return seen_; }
  ControlTransport& transport() { return *transport_; }
  CentralControl& control() { return *control_; }
  std::string address() const { return control_->address(); }
  void Stop() { control_.reset(); }
  // A worker of this process can join: central is alive.
  void ExpectAlive() {
    WorkerRecorder worker_seen;
    const auto worker = transport_->Connect(address(), kTimeoutMs, &worker_seen);
    ASSERT_TRUE(worker.ok()) << worker.status();
    const size_t before = seen_.joined();
    ASSERT_TRUE((*worker)->Send(HelloOf("alive")).ok());
    EXPECT_TRUE(seen_.WaitForJoined(before + 1).has_value());
  }

 private:
  CentralRecorder seen_;
  std::unique_ptr<ControlTransport> transport_;
  std::unique_ptr<CentralControl> control_;
};

// More than any buffer between two processes holds.
PrepareStage LargePrepareStage() {
  PrepareStage prepare;
  prepare.model.name = "m";
  prepare.state.layers = {
      {0, {{"0.weight", DType::kUInt8, {50'000'000}, std::string(50'000'000, 'x')}}, {}}};
  return prepare;
}

// ---- children

TEST(ControlGrpcChild, DISABLED_Worker) {
  WorkerRecorder seen;
  const auto transport = MakeGrpcControl(WithoutKeepalive());
  const auto worker = transport->Connect(ChildProcess::Argument(), kTimeoutMs, &seen).value();
  ASSERT_TRUE(worker->Send(HelloOf("child")).ok());
  ChildProcess::Report("joined");
  pause();
}

TEST(ControlGrpcChild, DISABLED_Central) {
  ChildProcess::Argument();
  Served served(WithoutKeepalive());
  ChildProcess::Report(served.address());
  pause();
}

TEST(ControlGrpc, KilledWorkerIsGone) {
  Served served(WithoutKeepalive());
  ChildProcess child("ControlGrpcChild.DISABLED_Worker", served.address());
  const std::optional<ConnectionId> id = served.seen().WaitForJoined(1);
  ASSERT_TRUE(id.has_value());
  child.Signal(SIGKILL);
  const absl::Status status = served.seen().WaitForGone(*id);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST(ControlGrpc, KilledCentralIsGone) {
  ChildProcess child("ControlGrpcChild.DISABLED_Central", "");
  const std::string address = child.ReadLine();
  const auto transport = MakeGrpcControl(WithoutKeepalive());
  WorkerRecorder seen;
  const auto worker = transport->Connect(address, kTimeoutMs, &seen);
  ASSERT_TRUE(worker.ok()) << worker.status();
  ASSERT_TRUE((*worker)->Send(HelloOf("w")).ok());
  child.Signal(SIGKILL);
  const absl::Status status = seen.WaitForClosed();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("central at " + address));
  EXPECT_EQ((*worker)->Send(StageReady{Generation(1)}).code(), absl::StatusCode::kUnavailable);
}

TEST(ControlGrpc, StoppedWorkerIsCutOffByClose) {
  Served served(WithoutKeepalive());
  ChildProcess child("ControlGrpcChild.DISABLED_Worker", served.address());
  const std::optional<ConnectionId> id = served.seen().WaitForJoined(1);
  ASSERT_TRUE(id.has_value());
  child.Signal(SIGSTOP);
  ASSERT_TRUE(served.control().Send(*id, LargePrepareStage()).ok());
  served.control().Close(*id);
  EXPECT_EQ(served.control().Send(*id, Release{}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(served.seen().WaitForGone(*id).code(), absl::StatusCode::kUnavailable);
}

TEST(ControlGrpc, StoppedWorkerDoesNotHoldUpTheDestructor) {
  Served served(WithoutKeepalive());
  ChildProcess child("ControlGrpcChild.DISABLED_Worker", served.address());
  const std::optional<ConnectionId> id = served.seen().WaitForJoined(1);
  ASSERT_TRUE(id.has_value());
  child.Signal(SIGSTOP);
  ASSERT_TRUE(served.control().Send(*id, LargePrepareStage()).ok());
  served.Stop();
  EXPECT_EQ(served.seen().WaitForGone(*id).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(served.seen().broken_rule());
}

TEST(ControlGrpc, StoppedCentralDoesNotHoldUpTheDestructor) {
  ChildProcess child("ControlGrpcChild.DISABLED_Central", "");
  const auto transport = MakeGrpcControl(WithoutKeepalive());
  WorkerRecorder seen;
  auto worker = transport->Connect(child.ReadLine(), kTimeoutMs, &seen).value();
  ASSERT_TRUE(worker->Send(HelloOf("w")).ok());
  child.Signal(SIGSTOP);
  ASSERT_TRUE(worker->Send(Snapshot{Generation(1), Sequence(1), LargePrepareStage().state}).ok());
  worker.reset();
  EXPECT_TRUE(seen.closed());
  EXPECT_EQ(seen.WaitForClosed().code(), absl::StatusCode::kUnavailable);
}

TEST(ControlGrpc, StoppedWorkerIsFoundByKeepalive) {
  GrpcControlOptions options;
  options.keepalive_ms = 100;
  options.keepalive_timeout_ms = 200;
  Served served(options);
  ChildProcess child("ControlGrpcChild.DISABLED_Worker", served.address());
  const std::optional<ConnectionId> id = served.seen().WaitForJoined(1);
  ASSERT_TRUE(id.has_value());
  child.Signal(SIGSTOP);
  EXPECT_EQ(served.seen().WaitForGone(*id).code(), absl::StatusCode::kUnavailable);
}

TEST(ControlGrpc, SilentStreamIsClosedAtTheHelloDeadline) {
  GrpcControlOptions options;
  options.hello_deadline_ms = 50;
  Served served(options);
  WorkerRecorder seen;
  const auto worker = served.transport().Connect(served.address(), kTimeoutMs, &seen);
  ASSERT_TRUE(worker.ok()) << worker.status();
  const absl::Status status = seen.WaitForClosed();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("hello: did not come within 50 ms"));
  EXPECT_EQ(served.seen().joined(), 0u);
}

// Each has a call that announces a message and sends none of it.
TEST(ControlGrpc, SilentStrangersTakeLittleMemory) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  Served served(GrpcControlOptions{});
  EXPECT_LT(GrowthUnderStrangers(300, served.address(), "/runnel.proto.Control/Join", 1,
                                 std::chrono::milliseconds(500)),
            kMostBytes);
  served.ExpectAlive();
}

TEST(ControlGrpc, JoinedStreamOutlivesTheHelloDeadline) {
  GrpcControlOptions options;
  options.hello_deadline_ms = 2'000;
  Served served(options);
  WorkerRecorder seen, silent_seen;
  const auto worker = served.transport().Connect(served.address(), kTimeoutMs, &seen).value();
  ASSERT_TRUE(worker->Send(HelloOf("w")).ok());
  const std::optional<ConnectionId> id = served.seen().WaitForJoined(1);
  ASSERT_TRUE(id.has_value());
  // A stream that came later has been closed at its deadline: that of the first has passed.
  const auto silent = served.transport().Connect(served.address(), kTimeoutMs, &silent_seen);
  ASSERT_TRUE(silent.ok()) << silent.status();
  EXPECT_EQ(silent_seen.WaitForClosed().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(worker->Send(StageReady{Generation(1)}).ok());
  EXPECT_TRUE(served.seen().WaitForMessages(*id, 2));
}

TEST(ControlGrpc, MoreStreamsThanAllowedAreRefused) {
  GrpcControlOptions options;
  options.max_streams = 1;
  Served served(options);
  WorkerRecorder seen_a, seen_b;
  const auto a = served.transport().Connect(served.address(), kTimeoutMs, &seen_a).value();
  ASSERT_TRUE(a->Send(HelloOf("a")).ok());
  ASSERT_TRUE(served.seen().WaitForJoined(1).has_value());
  const auto b = served.transport().Connect(served.address(), kTimeoutMs, &seen_b).value();
  const absl::Status status = seen_b.WaitForClosed();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 1 control streams already"));
}

// ---- addresses

TEST(ControlGrpc, ListensOnLoopbackOnly) {
  CentralRecorder seen;
  const auto transport = MakeGrpcControl(GrpcControlOptions{});
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    EXPECT_EQ(transport->Listen(address, &seen).status().code(),
              absl::StatusCode::kPermissionDenied)
        << address;
  }
  for (const char* address : {"", "x", "127.0.0.1", ":1", "127.0.0.1:99999", "no.such.host:0"}) {
    EXPECT_EQ(transport->Listen(address, &seen).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
  EXPECT_THAT(transport->Listen("localhost:0", &seen).value()->address(), HasSubstr("127.0.0.1:"));
  GrpcControlOptions options;
  options.allow_non_loopback = true;
  EXPECT_TRUE(MakeGrpcControl(options)->Listen("0.0.0.0:0", &seen).ok());
  EXPECT_EQ(MakeGrpcControl(options)->Listen("192.0.2.1:0", &seen).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ControlGrpc, DialsOnlyWhatMakesSense) {
  WorkerRecorder seen;
  const auto transport = MakeGrpcControl(GrpcControlOptions{});
  for (const char* address : {"", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999"}) {
    EXPECT_EQ(transport->Connect(address, 1, &seen).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
  EXPECT_EQ(transport->Connect("192.0.2.1:7000", 1, &seen).status().code(),
            absl::StatusCode::kPermissionDenied);
}

// ---- bytes that make no sense

// Sends bytes to the port as they are and closes when the other end has, or after they are sent.
void SendRaw(const std::string& address, const std::string& bytes, bool wait_for_end) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  char buffer[256];
  while (wait_for_end && recv(fd, buffer, sizeof(buffer), 0) > 0) {
  }
  close(fd);
}

TEST(ControlGrpc, GarbageOnThePortDoesNoHarm) {
  Served served(GrpcControlOptions{});
  std::mt19937_64 engine(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (int round = 0; round < 20; ++round) {
    std::string noise(engine() % 5000, '\0');
    for (char& c : noise) c = static_cast<char>(engine());
    SendRaw(served.address(), noise, false);
    SendRaw(served.address(), preface + noise, false);
  }
  SendRaw(served.address(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", true);
  SendRaw(served.address(), "", false);
  served.ExpectAlive();
}

std::string BytesOf(const WorkerMessage& message) { return ToProto(message).SerializeAsString(); }

using Buffers = grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// A client of the right method that says one thing of its own and then waits for the end, without
// reading what it is told beyond the first message.
class RawClient final : public Buffers, public Awaited {
 public:
  RawClient(const std::string& address, const std::string& says)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        says_(BufferOf(says)) {
    stub_.PrepareBidiStreamingCall(&context_, "/runnel.proto.Control/Join", {}, this);
    AddHold();  // until WaitForEnd
    StartWrite(&says_);
    StartRead(&heard_);
    StartCall();
  }
  void OnWriteDone(bool) override {
    std::lock_guard<std::mutex> lock(mutex_);
    written_ = true;
    changed_.notify_all();
  }
  // Once, after the first message.
  void SayMore(const std::string& bytes) {
    ASSERT_TRUE(WaitFor([&] { return written_; }));
    says_ = BufferOf(bytes);
    StartWrite(&says_);
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
    changed_.notify_all();
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status WaitForEnd() {
    RemoveHold();
    if (!WaitFor([&] { return status_.has_value(); })) {
      context_.TryCancel();
      (void)WaitFor([&] { return status_.has_value(); });
      return grpc::Status(grpc::StatusCode::INTERNAL, "did not end");
    }
    return *status_;
  }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer says_;
  grpc::ByteBuffer heard_;
  bool written_ = false;
  std::optional<grpc::Status> status_;
};

TEST(ControlGrpc, MessagesThatMakeNoSenseAreInvalid) {
  Served served(GrpcControlOptions{});
  const std::string cases[] = {"", "\xFF\xFF\xFF", std::string("\x0A\x02\x12\x05", 4),
                               std::string((1 << 20) + 10, '\0'),
                               std::string("\x7A\x03\x0A\x01x", 5)};
  for (const std::string& bytes : cases) {
    RawClient client(served.address(), bytes);
    const grpc::Status status = client.WaitForEnd();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  }
  // More than any message has gRPC does not even take in.
  RawClient client(served.address(), std::string((1 << 20) + 100, '\0'));
  EXPECT_EQ(client.WaitForEnd().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(served.seen().joined(), 0u);
  served.ExpectAlive();
}

// Its connection is alive and answers pings: neither keepalive nor TCP find anything wrong with it.
TEST(ControlGrpc, WorkerThatReadsNothingIsCutOffByClose) {
  Served served(WithoutKeepalive());
  RawClient client(served.address(), BytesOf(HelloOf("raw")));
  const std::optional<ConnectionId> id = served.seen().WaitForJoined(1);
  ASSERT_TRUE(id.has_value());
  ASSERT_TRUE(served.control().Send(*id, LargePrepareStage()).ok());
  served.control().Close(*id);
  client.SayMore(BytesOf(StageReady{Generation(1)}));
  EXPECT_EQ(served.seen().WaitForGone(*id).code(), absl::StatusCode::kUnavailable);
  client.Cancel();  // it does not see the end before it has read what came before
  EXPECT_FALSE(client.WaitForEnd().ok());
  EXPECT_EQ(served.seen().messages(*id).size(), 1u);  // what comes after Close is dropped
}

// A central of another make, which serves the calls that come as `Reactor` does.
template <typename Reactor>
class OtherCentral {
 public:
  OtherCentral() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  struct Service final : grpc::CallbackGenericService {
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
      return new Reactor();
    }
  };
  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Reads nothing.
class DeafReactor final : public grpc::ServerGenericBidiReactor {
 public:
  void OnCancel() override { Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }
};

TEST(ControlGrpc, CentralThatReadsNothingIsLeftByClose) {
  const OtherCentral<DeafReactor> central;
  const auto transport = MakeGrpcControl(WithoutKeepalive());
  WorkerRecorder seen;
  auto worker = transport->Connect(central.address(), kTimeoutMs, &seen).value();
  ASSERT_TRUE(worker->Send(Snapshot{Generation(1), Sequence(1), LargePrepareStage().state}).ok());
  worker->Close();
  const absl::Status status = seen.WaitForClosed();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not end within 500 ms"));
}

// A central that answers whatever comes with bytes that are no message.
class NoiseReactor final : public grpc::ServerGenericBidiReactor {
 public:
  NoiseReactor() { StartWrite(&noise_); }
  void OnWriteDone(bool) override { StartRead(&heard_); }
  void OnReadDone(bool ok) override {
    if (ok) {
      StartRead(&heard_);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer noise_ = BufferOf("\xFF\xFF\xFF");
  grpc::ByteBuffer heard_;
};

TEST(ControlGrpc, WorkerLeavesACentralThatMakesNoSense) {
  const OtherCentral<NoiseReactor> central;
  const auto transport = MakeGrpcControl(WithoutKeepalive());
  WorkerRecorder seen;
  const auto worker = transport->Connect(central.address(), kTimeoutMs, &seen).value();
  const absl::Status status = seen.WaitForClosed();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be parsed"));
}

}  // namespace
}  // namespace runnel::control_grpc_test
