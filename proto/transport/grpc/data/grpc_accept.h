#pragma once

// The accepting ends of gRPC streams: the listener of a transport.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/transport/grpc/data/grpc_calls.h"
#include "proto/transport/grpc/data/grpc_queue.h"
#include "proto/transport/grpc/data/grpc_stream.h"
#include "proto/transport/grpc/grpc_options.h"
#include "proto/transport/link/address.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// Accepts, and calls observers, on the thread of its queue; destroyed on another one.
class GrpcListener final : public Listener {
 public:
  GrpcListener(StreamOptions options, GrpcSecurity security, AcceptFn accept);
  ~GrpcListener() override;

  // Once. AlreadyExists: the port is in use.
  absl::Status Start(Address address, int64_t keepalive_ms);
  std::string address() const override { return address_; }
  // Runs once Start() has succeeded. Others may have it serve their calls too, and keep it longer.
  const std::shared_ptr<GrpcQueue>& queue() const { return queue_; }

 private:
  friend class AcceptCall;

  // Asks gRPC to hand over one more call.
  void Request();

  const StreamOptions options_;
  const GrpcSecurity security_;
  const AcceptFn accept_;
  std::string address_;
  const std::shared_ptr<LiveCalls> live_ = std::make_shared<LiveCalls>();
  std::shared_ptr<GrpcQueue> queue_;
  grpc::ServerCompletionQueue* server_queue_ = nullptr;  // queue_ as gRPC's type
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace runnel
