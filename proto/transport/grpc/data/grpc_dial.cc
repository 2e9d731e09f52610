#include "proto/transport/grpc/data/grpc_dial.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/transport/grpc/security/grpc_security.h"

namespace runnel {
namespace {

// Deletes itself when gRPC is done with it.
class DialCall final : public StreamCalls {
 public:
  DialCall(const std::shared_ptr<grpc::Channel>& channel, std::shared_ptr<GrpcStream> stream,
           std::shared_ptr<LiveCalls> live, std::string address)
      : stub_(channel),
        stream_(std::move(stream)),
        live_(std::move(live)),
        address_(std::move(address)) {}

  void Begin(GrpcQueue* queue, ConnectionObserver* observer, const LinkShaping& shaping) {
    live_->Begin();
    live_->Add(stream_);
    call_ = stub_.PrepareCall(&context_, kGrpcMethod, queue->get());
    call_->StartCall(start_.get());
    // From Attach() on the call may come to its end at any time.
    const std::shared_ptr<GrpcStream> stream = stream_;
    stream->SetCalls(this);
    stream->Attach(observer, shaping);
  }

  void Read(grpc::ByteBuffer* message) override {
    ++awaited_;
    call_->Read(message, read_.get());
  }
  void Write(const grpc::ByteBuffer* message, bool more) override {
    ++awaited_;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!started_) {
        held_ = {message, more};
        return;
      }
    }
    call_->Write(*message, WriteOptionsOf(more), write_.get());
  }
  void Cancel() override { context_.TryCancel(); }
  void End(const absl::Status&) override { Drop(); }
  bool is_accepting_end() const override { return false; }

 private:
  struct HeldWrite {
    const grpc::ByteBuffer* message = nullptr;
    bool more = false;
  };

  // If it could not start, all that follows fails too.
  void Started(bool) {
    HeldWrite held;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      started_ = true;
      held = held_;
    }
    if (held.message != nullptr) {
      call_->Write(*held.message, WriteOptionsOf(held.more), write_.get());
    }
    Drop();
  }
  void ReadOver(bool ok) {
    stream_->ReadDone(ok);
    Drop();
  }
  void WriteOver(bool ok) {
    stream_->WriteDone(ok);
    Drop();
  }
  // gRPC is asked how the call ended only when nothing else of it is under way.
  void Drop() {
    if (--awaited_ == 0) call_->Finish(&status_, finish_.get());
  }
  void Finished(bool) {
    stream_->Done(status_.ok() ? absl::OkStatus() : Translate(status_));
    const std::shared_ptr<LiveCalls> live = std::move(live_);
    delete this;
    live->Gone();
  }
  absl::Status Translate(const grpc::Status& status) const {
    const std::string text = absl::StrCat("connection to ", address_, ": ", status.error_message());
    // gRPC reports this only for a message beyond all our limits.
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      return absl::InvalidArgumentError(text);
    }
    return absl::UnavailableError(text);
  }

  grpc::GenericStub stub_;
  const std::shared_ptr<GrpcStream> stream_;
  std::shared_ptr<LiveCalls> live_;
  const std::string address_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;  // within the context's call
  grpc::Status status_;
  // gRPC starts a call and writes with the same state: a write waits until the start is over.
  std::mutex mutex_;
  bool started_ = false;  // guarded by mutex_
  HeldWrite held_;        // guarded by mutex_
  // Operations under way, and one for the stream, which may begin others until it calls End.
  std::atomic<int> awaited_{2};
  CallTag<DialCall> start_{this, &DialCall::Started};
  CallTag<DialCall> read_{this, &DialCall::ReadOver};
  CallTag<DialCall> write_{this, &DialCall::WriteOver};
  CallTag<DialCall> finish_{this, &DialCall::Finished};
};

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address, const Subject& peer,
                                          const GrpcSecurity& security, int64_t keepalive,
                                          int64_t connect_attempt) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxGrpcMessageBytes);
  // A TCP connection of its own: links do not share flow control, and a new dial does not wait
  // for the back-off of an old one.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
  // gRPC takes this one for the time that an attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(connect_attempt));
  const int keepalive_ms = static_cast<int>(keepalive);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const auto credentials = ChannelCredentials(security, peer, arguments);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace

GrpcDialler::GrpcDialler(StreamOptions options, GrpcSecurity security, int64_t keepalive_ms,
                         int64_t connect_attempt_ms)
    : options_(std::move(options)),
      security_(std::move(security)),
      keepalive_ms_(keepalive_ms),
      connect_attempt_ms_(connect_attempt_ms) {}

GrpcDialler::~GrpcDialler() {
  live_->Abort(absl::UnavailableError("connection: the transport is gone"));
  live_->Wait();
}

std::shared_ptr<Connection> GrpcDialler::Dial(const std::string& address, const Subject& peer,
                                              GrpcQueue* queue, ConnectionObserver* observer,
                                              const LinkShaping& shaping) {
  auto stream = std::make_shared<GrpcStream>(options_);
  auto* call =
      new DialCall(NewChannel(address, peer, security_, keepalive_ms_, connect_attempt_ms_), stream,
                   live_, address);
  call->Begin(queue, observer, shaping);
  return std::make_shared<GrpcConnection>(std::move(stream));
}

}  // namespace runnel
