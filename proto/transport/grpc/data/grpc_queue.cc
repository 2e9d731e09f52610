#include "proto/transport/grpc/data/grpc_queue.h"

#include <pthread.h>

#include <utility>

namespace runnel {

GrpcQueue::GrpcQueue(std::unique_ptr<grpc::CompletionQueue> queue) : queue_(std::move(queue)) {}

GrpcQueue::~GrpcQueue() {
  queue_->Shutdown();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Run();  // gRPC wants it empty
  }
}

void GrpcQueue::Start() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "runnel-links");
    Run();
  });
}

void GrpcQueue::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) static_cast<GrpcTag*>(tag)->Over(ok);
}

}  // namespace runnel
