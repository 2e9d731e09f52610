#pragma once

// One thread for the progress of gRPC's calls: a finished operation comes out of a completion queue
// and is handed to its call.

#include <grpcpp/completion_queue.h>

#include <memory>
#include <thread>

namespace runnel {

// Identifies one operation of a call towards gRPC. Lives in its call until the operation is over.
class GrpcTag {
 public:
  // Called on the queue's thread. It may destroy the tag.
  virtual void Over(bool ok) = 0;

 protected:
  ~GrpcTag() = default;
};

// Calls a method of its call.
template <typename Call>
class CallTag final : public GrpcTag {
 public:
  CallTag(Call* call, void (Call::*over)(bool ok)) : call_(call), over_(over) {}
  void Over(bool ok) override { (call_->*over_)(ok); }
  // The pointer that gRPC takes.
  void* get() { return static_cast<GrpcTag*>(this); }

 private:
  Call* const call_;
  void (Call::*const over_)(bool ok);
};

// The queue and its thread, from Start() until it is destroyed: on another thread than its own, and
// after the last of its calls and the server that it belongs to are gone.
class GrpcQueue {
 public:
  explicit GrpcQueue(std::unique_ptr<grpc::CompletionQueue> queue);
  ~GrpcQueue();
  GrpcQueue(const GrpcQueue&) = delete;
  GrpcQueue& operator=(const GrpcQueue&) = delete;

  void Start();
  grpc::CompletionQueue* get() const { return queue_.get(); }

 private:
  void Run();

  const std::unique_ptr<grpc::CompletionQueue> queue_;
  std::thread thread_;
};

}  // namespace runnel
