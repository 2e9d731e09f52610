#pragma once

// One worker's control stream at central's end, and the calls that carry it; included by
// grpc_control_*.cc and grpc_server_stream.cc only.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "proto/transport/control/control_parts.h"
#include "proto/transport/control/resumable_messages.h"
#include "proto/transport/grpc/control/grpc_control_ends.h"
#include "proto/transport/grpc/control/grpc_control_streams.h"

namespace runnel {

class ServerCall;

// One worker's stream, over one call after the other. Nothing is started on a call with mutex_
// held, since gRPC may call back at once.
class ServerStream final : public std::enable_shared_from_this<ServerStream> {
 public:
  // session: the worker's secret; empty: the stream ends with its first call. peer: who dials, if a
  // certificate says so.
  ServerStream(ConnectionId id, std::string session, std::optional<CertificateInfo> peer,
               std::shared_ptr<Streams> streams)
      : id_(id),
        session_key_(std::move(session)),
        peer_(std::move(peer)),
        streams_(std::move(streams)) {}

  ConnectionId id() const { return id_; }
  const std::string& session_key() const { return session_key_; }
  const std::optional<CertificateInfo>& peer() const { return peer_; }
  bool joined() const { return standing_ >= Standing::kJoined; }
  // Fail was called; the call is still to end.
  bool is_refused() const { return refused_; }
  // A call of its worker, who has so many of our messages; replaces the one before. How many of his
  // have come. InvalidArgument: that cannot be.
  absl::StatusOr<int64_t> Attach(std::shared_ptr<ServerCall> call, int64_t peer_received);
  void AwaitHello();
  absl::Status Send(CentralMessage message);
  TransferProgress Transfer();
  void Close();
  // Ends the stream with this status as soon as no write is on its way.
  void Fail(absl::Status status);
  // Starts what can be started next.
  void Step();

  // Called by calls, current or not.
  void Began(ServerCall& call);
  absl::Status Receive(ServerCall& call, const grpc::ByteBuffer& bytes);
  void ReadEnded(ServerCall& call);
  void WriteEnded(ServerCall& call, bool ok);
  void Ended(ServerCall& call, bool was_cancelled);

 private:
  // The first message.
  absl::Status Join(const WorkerMessage& hello);
  int64_t NowNanos() const { return streams_->timers().clock().NowNanos(); }
  // Ends the stream when all that is queued has been written.
  void EndInOrder();
  void CutOffAfterTimeout();
  // The connection broke.
  void Break();
  // Tells the owner that the stream is over, once.
  void Gone(const absl::Status& status);

  // Who the worker is to central.
  enum class Standing : uint8_t {
    kStranger,
    kJoined,    // has said hello
    kWelcomed,  // may send states
  };

  const ConnectionId id_;
  const std::string session_key_;
  const std::optional<CertificateInfo> peer_;
  const std::shared_ptr<Streams> streams_;  // a timer may hold a stream that has ended
  std::atomic<Standing> standing_{Standing::kStranger};
  std::atomic<bool> refused_{false};
  std::atomic<int64_t> held_bytes_{0};  // incoming_'s

  // Guards incoming_, and keeps the events of calls in order for the owner. Taken before mutex_.
  std::mutex receiving_;
  IncomingMessages<proto::FromWorker> incoming_;

  std::mutex mutex_;                  // guards what follows
  std::shared_ptr<ServerCall> call_;  // null: the connection broke, or the stream is over
  ResumableMessages<proto::FromCentral> messages_;
  absl::Status end_;  // not OK: why we end it
  StreamCourse course_ = StreamCourse::kOpen;
  bool deaf_ = false;     // we closed it: drop what comes in
  bool goodbye_ = false;  // the worker ends it in order
};

// One call. gRPC calls back one at a time for reads, for writes and at the end.
class ServerCall final : public Streams::Reactor {
 public:
  ServerCall(grpc::CallbackServerContext* context, std::shared_ptr<ServerStream> stream)
      : context_(context), stream_(std::move(stream)) {}

  // received: of the worker's messages, so far.
  void Begin(std::shared_ptr<ServerCall> self, int64_t received) {
    self_ = std::move(self);
    context_->AddInitialMetadata(kReceivedKey, absl::StrCat(received));
    StartSendInitialMetadata();
    StartRead(&read_);
    stream_->Began(*this);
  }
  void Write(const std::string& bytes) {
    write_ = ToBuffer(bytes);
    StartWrite(&write_);
  }
  void End(const absl::Status& status) { Finish(ToGrpc(status)); }
  // Only before the call has ended.
  void Cancel() { context_->TryCancel(); }

  // Guarded by the stream's mutex.
  bool begun = false;
  bool writing = false;
  bool unwritable = false;  // a write failed
  bool finished = false;    // Finish has been called
  bool done = false;

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return stream_->ReadEnded(*this);
    absl::Status status = stream_->Receive(*this, read_);
    if (status.ok()) return StartRead(&read_);
    stream_->Fail(std::move(status));
  }
  void OnWriteDone(bool ok) override { stream_->WriteEnded(*this, ok); }
  void OnDone() override {
    const std::shared_ptr<ServerCall> self = std::move(self_);
    const std::shared_ptr<ServerStream> stream = std::move(stream_);
    stream->Ended(*this, context_->IsCancelled());
  }

  grpc::CallbackServerContext* const context_;
  std::shared_ptr<ServerStream> stream_;
  std::shared_ptr<ServerCall> self_;  // until gRPC is done with it
  grpc::ByteBuffer read_;
  grpc::ByteBuffer write_;
};

}  // namespace runnel
