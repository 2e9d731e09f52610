#include "proto/transport/grpc/data/grpc_accept.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/transport/grpc/security/grpc_security.h"

namespace runnel {
namespace {

// The status for the other end: the reason, but not a fault of its transport.
grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                      absl::StrCat("the peer closed it: ", status.message()));
}

}  // namespace

// An accepted call, from the request for it on. Deletes itself when gRPC is done with it; the
// listener waits for that.
class AcceptCall final : public StreamCalls {
 public:
  explicit AcceptCall(GrpcListener* listener) : listener_(listener), live_(listener->live_) {
    live_->Begin();
    context_.AsyncNotifyWhenDone(done_.get());
    listener_->service_.RequestCall(&context_, &call_, listener_->server_queue_,
                                    listener_->server_queue_, request_.get());
  }

  void Read(grpc::ByteBuffer* message) override {
    ++awaited_;
    call_.Read(message, read_.get());
  }
  void Write(const grpc::ByteBuffer* message, bool more) override {
    ++awaited_;
    call_.Write(*message, WriteOptionsOf(more), write_.get());
  }
  void Cancel() override { context_.TryCancel(); }
  void End(const absl::Status& status) override { Finish(ToGrpc(status)); }
  bool is_accepting_end() const override { return true; }

 private:
  void Requested(bool ok) {
    // The server goes; of a call that never was, nothing more is heard.
    if (!ok) return Delete();
    listener_->Request();
    if (context_.method() == kGrpcMethod) {
      Accept();
    } else {
      Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                          absl::StrCat("no such method; frames go by ", kGrpcMethod)));
    }
    Drop();
  }
  void Accept() {
    std::string peer;
    if (listener_->security_.encrypts()) {
      const absl::StatusOr<CertificateInfo> info =
          PeerOf(*context_.auth_context(), listener_->security_);
      if (!info.ok()) {
        return Finish(grpc::Status(grpc::StatusCode::PERMISSION_DENIED,
                                   std::string(info.status().message())));
      }
      peer = info->subject.ToString();
    }
    stream_ = std::make_shared<GrpcStream>(listener_->options_, std::move(peer));
    stream_->SetCalls(this);
    Accepted accepted;
    if (listener_->live_->Add(stream_)) {
      accepted = listener_->accept_(std::make_shared<GrpcConnection>(stream_));
    }
    if (accepted.observer == nullptr || !stream_->Attach(accepted.observer, accepted.shaping)) {
      End(absl::UnavailableError("not accepted"));
    }
  }
  void Finish(const grpc::Status& status) {
    ++awaited_;
    call_.Finish(status, finish_.get());
  }
  void ReadOver(bool ok) {
    stream_->ReadDone(ok);
    Drop();
  }
  void WriteOver(bool ok) {
    stream_->WriteDone(ok);
    Drop();
  }
  void OneOver(bool) { Drop(); }
  void Drop() {
    if (--awaited_ > 0) return;
    if (stream_ != nullptr) {
      stream_->Done(context_.IsCancelled() ? absl::UnavailableError("connection: the peer is gone")
                                           : absl::OkStatus());
    }
    Delete();
  }
  void Delete() {
    const std::shared_ptr<LiveCalls> live = std::move(live_);
    delete this;
    live->Gone();
  }

  GrpcListener* const listener_;
  std::shared_ptr<LiveCalls> live_;
  std::shared_ptr<GrpcStream> stream_;  // null before the call comes, and if it is for nobody
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter call_{&context_};
  // Tags that are still to come: at first that of the request and, once there is a call, that of
  // its end. A stream whose read has failed calls End, so the last one comes after Finish.
  std::atomic<int> awaited_{2};
  CallTag<AcceptCall> request_{this, &AcceptCall::Requested};
  CallTag<AcceptCall> done_{this, &AcceptCall::OneOver};
  CallTag<AcceptCall> read_{this, &AcceptCall::ReadOver};
  CallTag<AcceptCall> write_{this, &AcceptCall::WriteOver};
  CallTag<AcceptCall> finish_{this, &AcceptCall::OneOver};
};

GrpcListener::GrpcListener(StreamOptions options, GrpcSecurity security, AcceptFn accept)
    : options_(std::move(options)), security_(std::move(security)), accept_(std::move(accept)) {}

GrpcListener::~GrpcListener() {
  if (server_ == nullptr) return;
  live_->Abort(absl::OkStatus());
  // Cancels calls accepted meanwhile, and makes the request for one more call fail.
  server_->Shutdown(std::chrono::system_clock::now());
  live_->Wait();
  server_.reset();  // before its queue
}

absl::Status GrpcListener::Start(Address address, int64_t keepalive) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address.ToString(), ServerCredentials(security_), &port);
  BoundStrangers(builder);
  builder.RegisterAsyncGenericService(&service_);
  builder.SetMaxReceiveMessageSize(kMaxGrpcMessageBytes);
  // A connection carries one stream.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);
  // Two listeners on one port would share its connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  const int keepalive_ms = static_cast<int>(keepalive);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
  // The dialling end asks as often; that is no abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             keepalive_ms / 2);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  auto queue = builder.AddCompletionQueue();
  server_queue_ = queue.get();
  queue_ = std::make_shared<GrpcQueue>(std::move(queue));
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", address.ToString(), ": the port is in use"));
  }
  address.port = port;
  address_ = address.ToString();
  Request();
  queue_->Start();
  return absl::OkStatus();
}

void GrpcListener::Request() { new AcceptCall(this); }

}  // namespace runnel
