#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/transport/grpc/control/grpc_client_stream.h"
#include "proto/transport/grpc/control/grpc_control_ends.h"
#include "proto/transport/grpc/listen_address.h"
#include "proto/transport/grpc/security/grpc_security.h"
#include "proto/transport/grpc/security/join_secret.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

class GrpcWorkerControl final : public WorkerControl {
 public:
  GrpcWorkerControl(Address central, std::shared_ptr<ClientStream> stream)
      : central_(std::move(central)), stream_(std::move(stream)) {}
  ~GrpcWorkerControl() override {
    stream_->Close();
    stream_->WaitUntilDone();
  }
  absl::Status Send(WorkerMessage message) override { return stream_->Send(std::move(message)); }
  absl::StatusOr<std::string> LocalHost() const override { return LocalHostTowards(central_); }
  void Close() override { stream_->Close(); }

 private:
  const Address central_;
  std::shared_ptr<ClientStream> stream_;
};

grpc::ChannelArguments ArgumentsFor(const GrpcControlOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // a proxy of the environment is not meant
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection a worker
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3'000);  // longest attempt
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_ms));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(options.keepalive_timeout_ms));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerControl>> ConnectGrpc(const std::string& address,
                                                           int64_t timeout_ms,
                                                           const GrpcControlOptions& options,
                                                           EventLoop* timers, PortProbe* ports,
                                                           WorkerControlObserver* observer) {
  RUNNEL_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  const bool encrypts = options.security.encrypts();
  RUNNEL_RETURN_IF_ERROR(CheckDialAddress(parsed, options.allow_non_loopback || encrypts));
  const std::string target = parsed.ToString();
  if (parsed.port == 0) {
    return absl::InvalidArgumentError(absl::StrCat("address '", address, "': needs a port"));
  }
  grpc::ChannelArguments arguments = ArgumentsFor(options);
  const auto credentials = ChannelCredentials(options.security, CentralSubject(), arguments);
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(target, credentials, arguments);
  const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms);
  if (!channel->WaitForConnected(deadline)) {
    return absl::UnavailableError(absl::StrCat(
        "no central answers at ", target, " within ", timeout_ms, " ms",
        encrypts ? ", none of this worker's cluster at least"
                 : "; where `runnel-central init` was called, a worker must --join first"));
  }
  // Read now: central has made the file when it listens.
  std::string secret;
  if (!encrypts && parsed.is_loopback() && !options.security.secrets_folder.empty())
    secret = ReadJoinSecret(options.security.secrets_folder, parsed.port).value_or("");
  auto stream = std::make_shared<ClientStream>(parsed, std::move(channel), options, timers, ports,
                                               secret, observer);
  stream->Dial();
  return std::make_unique<GrpcWorkerControl>(parsed, std::move(stream));
}

}  // namespace runnel
