#include "proto/transport/grpc/grpc_process.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdlib>

namespace runnel {
namespace {

// A server that listens nowhere: it holds what it would need to serve with callbacks.
struct Holder {
  grpc::CallbackGenericService service;
  std::unique_ptr<grpc::Server> server;

  Holder() {
    setenv("GRPC_EXPERIMENTS", "tcp_frame_size_tuning,tcp_rcv_lowat", /*overwrite=*/0);
    setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0);
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&service);
    server = builder.BuildAndStart();
  }
};

}  // namespace

void KeepGrpcForTheProcess() {
  // Never destroyed; volatile, so that the pointer is really there for whoever looks for leaks.
  static const Holder* volatile holder = new Holder;
  (void)holder;
}

}  // namespace runnel
