#include "proto/transport/grpc/data/grpc_transport.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "proto/base/status_macros.h"
#include "proto/transport/grpc/data/grpc_accept.h"
#include "proto/transport/grpc/data/grpc_dial.h"
#include "proto/transport/grpc/grpc_process.h"
#include "proto/transport/grpc/listen_address.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(const GrpcTransportOptions& options)
      : options_(options),
        stream_options_{std::clamp(options.chunk_bytes, int64_t{4096}, kMaxChunkBytes),
                        options.pool != nullptr ? options.pool : &pool_,
                        std::make_shared<ThreadScheduler>()},
        dialler_(std::make_unique<GrpcDialler>(stream_options_, options.security,
                                               options.keepalive_ms, options.connect_attempt_ms)) {
    KeepGrpcForTheProcess();
  }
  ~GrpcTransport() override {
    dialler_.reset();
    stream_options_.scheduler->Stop();
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   AcceptFn accept) override {
    RUNNEL_ASSIGN_OR_RETURN(const Address parsed, ToListenAddress(address, allow_non_loopback()));
    auto listener =
        std::make_unique<GrpcListener>(stream_options_, options_.security, std::move(accept));
    RUNNEL_RETURN_IF_ERROR(listener->Start(parsed, options_.keepalive_ms));
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_ == nullptr) queue_ = listener->queue();
    return listener;
  }

  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget& to,
                                                   ConnectionObserver* observer,
                                                   const LinkShaping& shaping) override {
    RUNNEL_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(to.address));
    RUNNEL_RETURN_IF_ERROR(CheckDialAddress(parsed, allow_non_loopback()));
    Subject peer;
    if (options_.security.encrypts()) {
      peer = options_.security.identity->info().subject;
      if (!to.peer.empty()) {
        RUNNEL_ASSIGN_OR_RETURN(peer, ParseSubject(to.peer));
      }
    }
    return dialler_->Dial(parsed.ToString(), peer, DialQueue(), observer, shaping);
  }

 private:
  bool allow_non_loopback() const {
    return options_.allow_non_loopback || options_.security.encrypts();
  }
  GrpcQueue* DialQueue() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_ == nullptr) {
      queue_ = std::make_shared<GrpcQueue>(std::make_unique<grpc::CompletionQueue>());
      queue_->Start();
    }
    return queue_.get();
  }

  const GrpcTransportOptions options_;
  BufferPool pool_;
  const StreamOptions stream_options_;
  std::mutex mutex_;
  // Queue of dialled calls: the first listener's, so that one thread serves a worker's links on
  // either side, as a queue of a server may also serve calls to others and outlive it. gRPC makes a
  // server's queues with the server: a second listener has its own, and a dial before the first
  // listener makes a second queue.
  std::shared_ptr<GrpcQueue> queue_;  // guarded by mutex_; set once
  std::unique_ptr<GrpcDialler> dialler_;
};

}  // namespace

std::unique_ptr<Transport> MakeGrpcTransport(const GrpcTransportOptions& options) {
  return std::make_unique<GrpcTransport>(options);
}

}  // namespace runnel
