#include "proto/transport/grpc_transport.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/transport/address.h"
#include "proto/transport/grpc_process.h"
#include "proto/transport/grpc_stream.h"
#include "proto/transport/listen_address.h"

namespace runnel {
namespace {

constexpr char kMethod[] = "/runnel.Data/Frames";
// gRPC's own limit of a message is behind the assembler's, which knows what to say.
constexpr int kMaxMessageBytes = 2 * static_cast<int>(kMaxChunkBytes);
// HTTP/2 frames of this size instead of 16 KiB: fewer headers a message.
constexpr int kHttp2FrameBytes = 1 << 20;

// The dialled streams of a transport: it ends when they have.
class LiveStreams {
 public:
  void Add(const std::shared_ptr<GrpcStream>& stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(streams_, [](const auto& weak) { return weak.expired(); });
    streams_.push_back(stream);
    ++reactors_;
  }
  void ReactorGone() {
    std::lock_guard<std::mutex> lock(mutex_);
    --reactors_;
    gone_.notify_all();
  }
  void AbortAndWait(const absl::Status& status) {
    std::vector<std::weak_ptr<GrpcStream>> streams;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      streams.swap(streams_);
    }
    for (const auto& weak : streams) {
      if (const auto stream = weak.lock()) stream->Abort(status);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    gone_.wait(lock, [this] { return reactors_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable gone_;
  std::vector<std::weak_ptr<GrpcStream>> streams_;  // guarded by mutex_
  int reactors_ = 0;                                // guarded by mutex_
};

grpc::WriteOptions OptionsOf(bool more) {
  return more ? grpc::WriteOptions().set_buffer_hint() : grpc::WriteOptions();
}

// What the other end is told: why, but not as if the fault were its transport's.
grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                      absl::StrCat("the peer closed it: ", status.message()));
}

// The dialling end of a stream. Deletes itself when gRPC is done with it.
class DialReactor final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                          public StreamCalls {
 public:
  DialReactor(std::shared_ptr<grpc::Channel> channel, std::shared_ptr<GrpcStream> stream,
              std::shared_ptr<ThreadScheduler> scheduler, std::shared_ptr<LiveStreams> live,
              std::string address)
      : channel_(std::move(channel)),
        stub_(channel_),
        stream_(std::move(stream)),
        scheduler_(std::move(scheduler)),
        live_(std::move(live)),
        address_(std::move(address)) {}

  void Begin(ConnectionObserver* observer, const LinkShaping& shaping) {
    live_->Add(stream_);
    stub_.PrepareBidiStreamingCall(&context_, kMethod, grpc::StubOptions(), this);
    // The stream may start to read or write at any time, until it calls End.
    AddHold();
    stream_->SetCalls(this);
    stream_->Attach(observer, shaping);
    StartCall();
  }

  void Read(grpc::ByteBuffer* message) override { StartRead(message); }
  void Write(const grpc::ByteBuffer* message, bool more) override {
    StartWrite(message, OptionsOf(more));
  }
  void Cancel() override { context_.TryCancel(); }
  void End(const absl::Status&) override { RemoveHold(); }
  bool is_accepting_end() const override { return false; }

 private:
  void OnReadDone(bool ok) override { stream_->ReadDone(ok); }
  void OnWriteDone(bool ok) override { stream_->WriteDone(ok); }
  void OnDone(const grpc::Status& status) override {
    stream_->Done(status.ok() ? absl::OkStatus() : Translate(status));
    // A channel must not be destroyed on the threads that it may be about to join.
    scheduler_->ScheduleAt(0, [channel = std::move(channel_), stub = std::move(stub_)] {});
    const std::shared_ptr<LiveStreams> live = std::move(live_);
    delete this;
    live->ReactorGone();
  }
  absl::Status Translate(const grpc::Status& status) const {
    const std::string text = absl::StrCat("connection to ", address_, ": ", status.error_message());
    // Only a message beyond every limit of ours makes gRPC say this.
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      return absl::InvalidArgumentError(text);
    }
    return absl::UnavailableError(text);
  }

  std::shared_ptr<grpc::Channel> channel_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub_;
  const std::shared_ptr<GrpcStream> stream_;
  const std::shared_ptr<ThreadScheduler> scheduler_;
  std::shared_ptr<LiveStreams> live_;
  const std::string address_;
  grpc::ClientContext context_;
};

// The accepting end of a stream. Deletes itself when gRPC is done with it.
class AcceptReactor final : public grpc::ServerGenericBidiReactor, public StreamCalls {
 public:
  AcceptReactor(std::shared_ptr<GrpcStream> stream, grpc::CallbackServerContext* context)
      : stream_(std::move(stream)), context_(context) {
    stream_->SetCalls(this);
  }

  void Read(grpc::ByteBuffer* message) override { StartRead(message); }
  void Write(const grpc::ByteBuffer* message, bool more) override {
    StartWrite(message, OptionsOf(more));
  }
  void Cancel() override { context_->TryCancel(); }
  void End(const absl::Status& status) override { Finish(ToGrpc(status)); }
  bool is_accepting_end() const override { return true; }

 private:
  void OnReadDone(bool ok) override { stream_->ReadDone(ok); }
  void OnWriteDone(bool ok) override { stream_->WriteDone(ok); }
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override {
    stream_->Done(cancelled_ ? absl::UnavailableError("connection: the peer is gone")
                             : absl::OkStatus());
    delete this;
  }

  const std::shared_ptr<GrpcStream> stream_;
  grpc::CallbackServerContext* const context_;
  std::atomic<bool> cancelled_{false};
};

class GrpcListener final : public Listener, private grpc::CallbackGenericService {
 public:
  GrpcListener(StreamOptions options, AcceptFn accept)
      : options_(std::move(options)), accept_(std::move(accept)) {}
  ~GrpcListener() override {
    if (server_ == nullptr) return;
    std::vector<std::weak_ptr<GrpcStream>> accepted;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      open_ = false;
      accepted.swap(accepted_);
    }
    for (const auto& weak : accepted) {
      if (const auto stream = weak.lock()) stream->Abort(absl::OkStatus());
    }
    // Cancels what was accepted meanwhile, and waits for all reactors.
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  absl::Status Start(Address address, const GrpcTransportOptions& transport_options) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address.ToString(), grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(this);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    // Two listeners on one port would share its connections.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
    const int keepalive_ms = static_cast<int>(transport_options.keepalive_ms);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
    // The dialling end asks as often; that is no abuse.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               keepalive_ms / 2);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::AlreadyExistsError(
          absl::StrCat("cannot listen on ", address.ToString(), ": the port is in use"));
    }
    address.port = port;
    address_ = address.ToString();
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (context->method() != kMethod) return CallbackGenericService::CreateReactor(context);
    auto stream = std::make_shared<GrpcStream>(options_);
    auto* reactor = new AcceptReactor(stream, context);
    bool open = false;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      open = open_;
      std::erase_if(accepted_, [](const auto& weak) { return weak.expired(); });
      accepted_.push_back(stream);
    }
    Accepted accepted;
    if (open) accepted = accept_(std::make_shared<GrpcConnection>(stream));
    if (accepted.observer == nullptr || !stream->Attach(accepted.observer, accepted.shaping)) {
      reactor->End(absl::UnavailableError("not accepted"));
    }
    return reactor;
  }

  const StreamOptions options_;
  const AcceptFn accept_;
  std::string address_;
  std::mutex mutex_;
  bool open_ = true;                                 // guarded by mutex_
  std::vector<std::weak_ptr<GrpcStream>> accepted_;  // guarded by mutex_
  std::unique_ptr<grpc::Server> server_;
};

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(const GrpcTransportOptions& options)
      : options_(options),
        stream_options_{std::clamp(options.chunk_bytes, int64_t{4096}, kMaxChunkBytes),
                        options.pool != nullptr ? options.pool : &pool_,
                        std::make_shared<ThreadScheduler>()} {
    KeepGrpcForTheProcess();
  }
  ~GrpcTransport() override {
    live_->AbortAndWait(absl::UnavailableError("connection: the transport is gone"));
    stream_options_.scheduler->Stop();
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   AcceptFn accept) override {
    RUNNEL_ASSIGN_OR_RETURN(const Address parsed,
                            ToListenAddress(address, options_.allow_non_loopback));
    auto listener = std::make_unique<GrpcListener>(stream_options_, std::move(accept));
    RUNNEL_RETURN_IF_ERROR(listener->Start(parsed, options_));
    return listener;
  }

  absl::StatusOr<std::shared_ptr<Connection>> Dial(const std::string& address,
                                                   ConnectionObserver* observer,
                                                   const LinkShaping& shaping) override {
    RUNNEL_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
    RUNNEL_RETURN_IF_ERROR(CheckDialAddress(parsed, options_.allow_non_loopback));
    auto stream = std::make_shared<GrpcStream>(stream_options_);
    auto* reactor = new DialReactor(NewChannel(parsed.ToString()), stream,
                                    stream_options_.scheduler, live_, parsed.ToString());
    reactor->Begin(observer, shaping);
    return std::make_shared<GrpcConnection>(std::move(stream));
  }

 private:
  std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) const {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
    // A TCP connection of its own: links do not share flow control, and a new dial does not wait
    // for the back-off of an old one.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kHttp2FrameBytes);
    const int keepalive_ms = static_cast<int>(options_.keepalive_ms);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  const GrpcTransportOptions options_;
  BufferPool pool_;
  const StreamOptions stream_options_;
  const std::shared_ptr<LiveStreams> live_ = std::make_shared<LiveStreams>();
};

}  // namespace

std::unique_ptr<Transport> MakeGrpcTransport(const GrpcTransportOptions& options) {
  return std::make_unique<GrpcTransport>(options);
}

}  // namespace runnel
