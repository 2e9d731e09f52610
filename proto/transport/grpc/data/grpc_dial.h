#pragma once

// The dialling ends of the gRPC streams of a transport.

#include <cstdint>
#include <memory>
#include <string>

#include "proto/transport/grpc/data/grpc_calls.h"
#include "proto/transport/grpc/data/grpc_queue.h"
#include "proto/transport/grpc/data/grpc_stream.h"
#include "proto/transport/grpc/grpc_options.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// Thread-safe. Destroying it breaks what still stands and waits for it: not on a queue's thread,
// and before the queues.
class GrpcDialler {
 public:
  GrpcDialler(StreamOptions options, GrpcSecurity security, int64_t keepalive_ms,
              int64_t connect_attempt_ms);
  ~GrpcDialler();

  // Dials as Transport::Dial; the observer is called on the queue's thread. peer: counts only if
  // streams are encrypted.
  std::shared_ptr<Connection> Dial(const std::string& address, const Subject& peer,
                                   GrpcQueue* queue, ConnectionObserver* observer,
                                   const LinkShaping& shaping);

 private:
  const StreamOptions options_;
  const GrpcSecurity security_;
  const int64_t keepalive_ms_;
  const int64_t connect_attempt_ms_;
  const std::shared_ptr<LiveCalls> live_ = std::make_shared<LiveCalls>();
};

}  // namespace runnel
