#include "proto/transport/grpc/control/grpc_control.h"

#include <string>
#include <thread>
#include <vector>

#include "proto/base/clock.h"
#include "proto/transport/control/wire_check.h"
#include "proto/transport/grpc/control/grpc_control_ends.h"
#include "proto/transport/grpc/grpc_process.h"
#include "proto/transport/link/event_loop.h"

namespace runnel {
namespace {

constexpr size_t kMaxStatusBytes = 1024;

class GrpcControl final : public ControlTransport {
 public:
  explicit GrpcControl(const GrpcControlOptions& options)
      : options_(options), thread_([this] { timers_.Run(); }) {
    KeepGrpcForTheProcess();
  }
  ~GrpcControl() override {
    timers_.Stop();
    thread_.join();
  }

  absl::StatusOr<std::unique_ptr<CentralControl>> Listen(
      const std::string& address, CentralControlObserver* observer) override {
    return ListenGrpc(address, options_, &timers_, observer);
  }
  absl::StatusOr<std::unique_ptr<WorkerControl>> Connect(const std::string& address,
                                                         int64_t timeout_ms,
                                                         WorkerControlObserver* observer) override {
    return ConnectGrpc(address, timeout_ms, options_, &timers_, &ports_, observer);
  }

 private:
  const GrpcControlOptions options_;
  MonotonicClock clock_;
  ThreadLoop timers_{&clock_};
  PortProbe ports_;
  std::thread thread_;  // last: it runs while all of the above lives
};

}  // namespace

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string ToBytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return "";
  std::string bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      CleanUtf8(status.message(), kMaxStatusBytes));
}

std::unique_ptr<ControlTransport> MakeGrpcControl(const GrpcControlOptions& options) {
  return std::make_unique<GrpcControl>(options);
}

}  // namespace runnel
