// What is particular to the transport over gRPC: other processes, hostile streams, addresses.

#include "proto/transport/grpc/data/grpc_transport.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/transport/child_process.h"
#include "tests/transport/test_frames.h"

namespace runnel::grpc_transport_test {
namespace {

constexpr char kAnyPort[] = "127.0.0.1:0";
constexpr std::chrono::seconds kDeadline{30};

class Waiter final : public ConnectionObserver {
 public:
  absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
  void OnFrame(Frame) override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++frames_;
    thread_ = std::this_thread::get_id();
    changed_.notify_all();
  }
  void OnClosed(const absl::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_.push_back(status);
    changed_.notify_all();
  }
  // The status of OnClosed; DeadlineExceeded if it does not come.
  absl::Status WaitClosed(std::chrono::seconds deadline = kDeadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, deadline, [this] { return !closed_.empty(); });
    return closed_.empty() ? absl::DeadlineExceededError("never closed") : closed_[0];
  }
  bool WaitFrames(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kDeadline, [&] { return frames_ >= count; });
  }
  // That of the last OnFrame.
  std::thread::id thread() {
    std::lock_guard<std::mutex> lock(mutex_);
    return thread_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int frames_ = 0;
  std::thread::id thread_;
  std::vector<absl::Status> closed_;
};

// Accepts one connection after the other for the same observer.
class Server {
 public:
  Server() {
    listener_ = *transport_->Listen(kAnyPort, [this](std::shared_ptr<Connection> connection) {
      std::lock_guard<std::mutex> lock(mutex_);
      connections_.push_back(std::move(connection));
      return Accepted{&waiter_, {}};
    });
  }
  ~Server() {
    listener_.reset();
    connections_.clear();
  }
  std::string address() const { return listener_->address(); }
  Waiter& waiter() { return waiter_; }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const std::string& address, Waiter* waiter) {
    return transport_->Dial(address, waiter, {});
  }
  // To whoever dialled last.
  absl::Status Send(const Frame& frame) {
    std::lock_guard<std::mutex> lock(mutex_);
    return connections_.back()->Send(frame);
  }

 private:
  Waiter waiter_;
  std::unique_ptr<Transport> transport_ = MakeGrpcTransport({});
  std::mutex mutex_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::unique_ptr<Listener> listener_;
};

// ---- peers that are killed

// A child that accepts connections, or dials its parent, and sends without end.
TEST(GrpcTransportChild, DISABLED_Accepts) {
  Server server;
  ChildProcess::Report(server.address());
  server.waiter().WaitClosed().IgnoreError();
}

TEST(GrpcTransportChild, DISABLED_DialsAndSends) {
  const std::string address = ChildProcess::Argument();
  Waiter waiter;
  auto transport = MakeGrpcTransport({});
  auto connection = transport->Dial(address, &waiter, {});
  ASSERT_TRUE(connection.ok());
  for (int i = 0; i < 200; ++i) {
    (*connection)->Send(TestFrame(FrameKind::kInput, i, 1 << 20)).IgnoreError();
  }
  ChildProcess::Report("sending");
  waiter.WaitClosed().IgnoreError();
}

TEST(GrpcTransport, AKilledAcceptorIsUnavailable) {
  ChildProcess child("GrpcTransportChild.DISABLED_Accepts", "");
  const std::string address = child.ReadLine();
  Waiter waiter;
  auto transport = MakeGrpcTransport({});
  auto connection = transport->Dial(address, &waiter, {});
  ASSERT_TRUE(connection.ok()) << connection.status();
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE((*connection)->Send(TestFrame(FrameKind::kInput, i, 1 << 20)).ok());
  }
  child.Signal(SIGKILL);
  EXPECT_TRUE(absl::IsUnavailable(waiter.WaitClosed()));
}

TEST(GrpcTransport, AKilledDiallerIsUnavailable) {
  Server server;
  ChildProcess child("GrpcTransportChild.DISABLED_DialsAndSends", server.address());
  EXPECT_EQ(child.ReadLine(), "sending");
  ASSERT_TRUE(server.waiter().WaitFrames(3));
  child.Signal(SIGKILL);
  EXPECT_TRUE(absl::IsUnavailable(server.waiter().WaitClosed()));
}

// ---- hostile streams

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// Sends messages as they are, then half-closes; reads what comes until the end.
class RawClient final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawClient(const std::string& address, const std::vector<std::string>& messages,
            const std::string& method = "/runnel.Data/Frames")
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {
    for (const std::string& message : messages) messages_.push_back(BufferOf(message));
    stub_.PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
    StartRead(&answer_);
    Next();
    StartCall();
  }
  grpc::StatusCode Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_changed_.wait_for(lock, kDeadline, [this] { return done_; });
    return done_ ? status_.error_code() : grpc::StatusCode::DO_NOT_USE;
  }

 private:
  void Next() {
    if (next_ < messages_.size()) {
      StartWrite(&messages_[next_++]);
    } else {
      StartWritesDone();
    }
  }
  void OnWriteDone(bool ok) override {
    if (ok) Next();
  }
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&answer_);
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
    done_ = true;
    done_changed_.notify_all();
  }

  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub_;
  grpc::ClientContext context_;
  std::vector<grpc::ByteBuffer> messages_;
  size_t next_ = 0;
  grpc::ByteBuffer answer_;
  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  grpc::Status status_;
};

std::string HeaderOf(const Frame& frame) {
  const auto header = EncodeHeader(frame.header);
  return std::string(reinterpret_cast<const char*>(header.data()), header.size());
}

struct Hostile {
  const char* what;
  std::vector<std::string> messages;
  absl::StatusCode expected;
};

TEST(GrpcTransport, HostileStreamsEndWithClearErrors) {
  const Frame frame = TestFrame(FrameKind::kInput, 0, 100);
  const std::string header = HeaderOf(frame);
  const std::string payload(reinterpret_cast<const char*>(frame.payload.bytes().data()), 100);
  const std::vector<Hostile> cases = {
      {"noise", {std::string(200, 'x')}, absl::StatusCode::kDataLoss},
      {"short first message", {header.substr(0, 40)}, absl::StatusCode::kInvalidArgument},
      {"long message", {header + payload + "!"}, absl::StatusCode::kInvalidArgument},
      {"frame within a frame", {header, header + payload}, absl::StatusCode::kInvalidArgument},
      {"goodbye within a frame", {header, ""}, absl::StatusCode::kDataLoss},
      {"half-close within a frame", {header, "abc"}, absl::StatusCode::kDataLoss},
      {"half-close without a goodbye", {header + payload}, absl::StatusCode::kUnavailable},
      {"wrong payload", {header, std::string(100, '?')}, absl::StatusCode::kDataLoss},
      {"message beyond a chunk", {std::string((4 << 20) + 1000, 'x')}, absl::StatusCode::kDataLoss},
      {"goodbye and more", {"", header}, absl::StatusCode::kOk},
      {"in order", {header, payload, ""}, absl::StatusCode::kOk},
  };
  for (const Hostile& hostile : cases) {
    SCOPED_TRACE(hostile.what);
    Server server;
    RawClient client(server.address(), hostile.messages);
    EXPECT_EQ(server.waiter().WaitClosed().code(), hostile.expected);
    EXPECT_EQ(client.Wait(), hostile.expected == absl::StatusCode::kOk
                                 ? grpc::StatusCode::OK
                                 : grpc::StatusCode::UNAVAILABLE);
  }
}

TEST(GrpcTransport, AMessageBeyondEveryLimitNeverComesThrough) {
  Server server;
  RawClient client(server.address(), {std::string(20 << 20, 'x')});
  EXPECT_FALSE(server.waiter().WaitClosed().ok());
  EXPECT_NE(client.Wait(), grpc::StatusCode::OK);
}

TEST(GrpcTransport, OtherMethodsAreUnimplemented) {
  Server server;
  RawClient client(server.address(), {}, "/runnel.Data/Other");
  EXPECT_EQ(client.Wait(), grpc::StatusCode::UNIMPLEMENTED);
}

// ---- threads

// A link is given up after 20 s without a connection: one attempt must not use them up.
TEST(GrpcTransport, AnAttemptToConnectEndsInItsTime) {
  const int mute = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(mute, generic, size), 0);
  ASSERT_EQ(listen(mute, 1), 0);  // and nobody ever accepts
  ASSERT_EQ(getsockname(mute, generic, &size), 0);
  const auto transport = MakeGrpcTransport({.connect_attempt_ms = 100});
  Waiter waiter;
  const auto connection = transport->Dial("127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
                                          &waiter, LinkShaping());
  ASSERT_TRUE(connection.ok()) << connection.status();
  // gRPC's own time for an attempt is 20 s.
  EXPECT_TRUE(absl::IsUnavailable(waiter.WaitClosed(std::chrono::seconds(10))));
  close(mute);
}

TEST(GrpcTransport, OneThreadServesWhatATransportAcceptsAndDials) {
  const Frame frame = TestFrame(FrameKind::kInput, 0, 100);
  Server left, middle, right;
  Waiter from_middle, from_right;
  const auto to_middle = left.Dial(middle.address(), &from_middle);
  const auto to_right = middle.Dial(right.address(), &from_right);
  ASSERT_TRUE(to_middle.ok() && to_right.ok());
  ASSERT_TRUE((*to_middle)->Send(frame).ok());
  ASSERT_TRUE(middle.waiter().WaitFrames(1));
  ASSERT_TRUE((*to_right)->Send(frame).ok());
  ASSERT_TRUE(right.waiter().WaitFrames(1));
  ASSERT_TRUE(right.Send(frame).ok());
  ASSERT_TRUE(from_right.WaitFrames(1));
  EXPECT_EQ(middle.waiter().thread(), from_right.thread());
  EXPECT_NE(middle.waiter().thread(), right.waiter().thread());
}

TEST(GrpcTransport, WhatIsDialledOutlivesTheListenerOfItsThread) {
  const auto refuse = [](std::shared_ptr<Connection>) { return Accepted{}; };
  Server right;
  Waiter from_right;
  const auto transport = MakeGrpcTransport({});
  auto listener = transport->Listen(kAnyPort, refuse);
  ASSERT_TRUE(listener.ok());
  const auto to_right = transport->Dial(right.address(), &from_right, {});
  ASSERT_TRUE(to_right.ok());
  listener->reset();
  ASSERT_TRUE((*to_right)->Send(TestFrame(FrameKind::kInput, 0, 100)).ok());
  EXPECT_TRUE(right.waiter().WaitFrames(1));
  EXPECT_TRUE(transport->Listen(kAnyPort, refuse).ok());
  (*to_right)->Close();
  EXPECT_TRUE(from_right.WaitClosed().ok());
}

// ---- addresses

TEST(GrpcTransport, StaysOnLoopbackUnlessTold) {
  auto transport = MakeGrpcTransport({});
  Waiter waiter;
  const auto accept = [](std::shared_ptr<Connection>) { return Accepted{}; };
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0", "10.0.0.1:4000"}) {
    EXPECT_TRUE(absl::IsPermissionDenied(transport->Listen(address, accept).status())) << address;
    EXPECT_TRUE(absl::IsPermissionDenied(transport->Dial(address, &waiter, {}).status()))
        << address;
  }
  EXPECT_TRUE(
      absl::IsPermissionDenied(transport->Dial("127.evil.example:1", &waiter, {}).status()));
  EXPECT_TRUE(transport->Listen("localhost:0", accept).ok());
  GrpcTransportOptions trusted;
  trusted.allow_non_loopback = true;
  auto open = MakeGrpcTransport(trusted);
  const auto listener = open->Listen("0.0.0.0:0", accept);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(absl::StartsWith((*listener)->address(), "0.0.0.0:"));
}

TEST(GrpcTransport, TheHostsOfTheSystemAreNoAddresses) {
  auto transport = MakeGrpcTransport({});
  const auto accept = [](std::shared_ptr<Connection>) { return Accepted{}; };
  EXPECT_TRUE(absl::IsInvalidArgument(transport->Listen("some.name:0", accept).status()));
}

}  // namespace
}  // namespace runnel::grpc_transport_test
