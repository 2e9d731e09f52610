#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/worker_name.h"
#include "proto/control.grpc.pb.h"
#include "proto/transport/grpc/control/grpc_control_streams.h"
#include "proto/transport/grpc/control/grpc_members_service.h"
#include "proto/transport/grpc/control/grpc_relay.h"
#include "proto/transport/grpc/listen_address.h"
#include "proto/transport/grpc/security/grpc_renew.h"
#include "proto/transport/grpc/security/grpc_security.h"
#include "proto/transport/grpc/security/join_secret.h"

namespace runnel {
namespace {

// A worker's own, and calls beside it.
constexpr int kMaxStreamsOfAConnection = 8;

class JoinService final : public proto::Control::WithRawCallbackMethod_Join<
                              proto::Control::WithCallbackMethod_Renew<proto::Control::Service>> {
 public:
  explicit JoinService(Streams* streams) : streams_(streams) {}
  Streams::Reactor* Join(grpc::CallbackServerContext* context) override {
    return streams_->Add(context);
  }
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const proto::RenewRequest* request,
                                  proto::RenewReply* reply) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const absl::StatusOr<CertificateInfo> worker = streams_->CheckRole(*context, Role::kWorker);
    absl::StatusOr<std::string> certificate = worker.ok()
                                                  ? RenewFor(*worker, request->request_pem())
                                                  : absl::StatusOr<std::string>(worker.status());
    if (certificate.ok()) reply->set_certificate_pem(*std::move(certificate));
    reactor->Finish(ToGrpc(certificate.status()));
    return reactor;
  }

 private:
  absl::StatusOr<std::string> RenewFor(const CertificateInfo& worker, const std::string& request) {
    if (request.size() > kMaxRenewBytes) return absl::InvalidArgumentError("request: is too long");
    if (streams_->options().orders.renew == nullptr)
      return absl::UnimplementedError("this central renews nothing");
    return streams_->options().orders.renew(worker, request);
  }

  Streams* streams_;
};

class AdminService final : public proto::Admin::WithCallbackMethod_Revoke<proto::Admin::Service> {
 public:
  explicit AdminService(Streams* streams) : streams_(streams) {}
  grpc::ServerUnaryReactor* Revoke(grpc::CallbackServerContext* context,
                                   const proto::RevokeRequest* request,
                                   proto::RevokeReply*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    absl::Status status = streams_->CheckRole(*context, Role::kOperator).status();
    if (status.ok()) status = CheckWorkerName("name", request->name());
    const auto& revoke = streams_->options().orders.revoke;
    if (status.ok() && revoke == nullptr)
      status = absl::UnimplementedError("this central takes no orders");
    if (status.ok()) status = revoke(request->name());
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

 private:
  Streams* streams_;
};

class GrpcCentralControl final : public CentralControl {
 public:
  GrpcCentralControl(const GrpcControlOptions& options, EventLoop* timers,
                     CentralControlObserver* observer)
      : streams_(std::make_shared<Streams>(options, timers, observer)),
        service_(streams_.get()),
        admin_(streams_.get()),
        members_(MakeMembersService(streams_.get())),
        desk_(std::make_shared<RelayDesk>(streams_)),
        relay_(desk_) {}
  ~GrpcCentralControl() override;

  absl::Status Listen(const std::string& address);
  std::string address() const override { return address_.ToString(); }
  absl::Status Send(ConnectionId id, CentralMessage message) override {
    return streams_->Send(id, std::move(message));
  }
  TransferProgress Transfer(ConnectionId id) override { return streams_->Transfer(id); }
  void LimitStates(int64_t bytes) override { streams_->LimitStates(bytes); }
  void AllowRelay(RelayPlan plan) override { desk_->Allow(std::move(plan)); }
  std::vector<RelayedLink> RelayedLinks() override { return desk_->Links(); }
  void Close(ConnectionId id) override { streams_->Close(id); }

 private:
  absl::Status StartServer(Address address);
  absl::Status MakeSecret(int port);

  const std::shared_ptr<Streams> streams_;
  JoinService service_;
  AdminService admin_;
  const std::unique_ptr<grpc::Service> members_;
  const std::shared_ptr<RelayDesk> desk_;
  RelayService relay_;
  Address address_;
  int secret_port_ = 0;  // port of the file with the join secret; 0: there is none
  std::unique_ptr<grpc::Server> server_;
};

absl::Status GrpcCentralControl::MakeSecret(int port) {
  RUNNEL_ASSIGN_OR_RETURN(std::string secret,
                          MakeJoinSecret(streams_->options().security.secrets_folder, port));
  secret_port_ = port;
  streams_->RequireSecret(std::move(secret));
  return absl::OkStatus();
}

absl::Status GrpcCentralControl::Listen(const std::string& text) {
  const GrpcControlOptions& options = streams_->options();
  const bool encrypts = options.security.encrypts();
  RUNNEL_ASSIGN_OR_RETURN(Address address,
                          ToListenAddress(text, options.allow_non_loopback || encrypts));
  const bool asks_secret = !encrypts && !options.allow_non_loopback && address.is_loopback() &&
                           !options.security.secrets_folder.empty();
  if (asks_secret) streams_->RequireSecret("");
  // Before anybody can dial. A port that is not known yet nobody dials.
  const bool is_known = address.port != 0;
  if (asks_secret && is_known) RUNNEL_RETURN_IF_ERROR(MakeSecret(address.port));
  RUNNEL_RETURN_IF_ERROR(StartServer(std::move(address)));
  if (asks_secret && !is_known) RUNNEL_RETURN_IF_ERROR(MakeSecret(address_.port));
  streams_->CheckPeers();
  return absl::OkStatus();
}

absl::Status GrpcCentralControl::StartServer(Address address) {
  const GrpcControlOptions& options = streams_->options();
  grpc::ServerBuilder builder;
  BoundStrangers(builder);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxWireMessageBytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsOfAConnection);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             static_cast<int>(options.keepalive_timeout_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Workers ping as well; without this gRPC takes it for an attack after the second one.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  int port = 0;
  builder.AddListeningPort(address.ToString(), ServerCredentials(options.security), &port);
  builder.RegisterService(&service_);
  builder.RegisterService(&admin_);
  builder.RegisterService(members_.get());
  builder.RegisterCallbackGenericService(&relay_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("cannot listen on ", address.ToString(), ": the port is in use"));
  }
  address.port = port;
  address_ = std::move(address);
  return absl::OkStatus();
}

GrpcCentralControl::~GrpcCentralControl() {
  // Workers dial again at once. Until the port is free they are told that this central ends; behind
  // that the file may be the next central's.
  streams_->CloseAll();
  if (secret_port_ != 0)
    RemoveJoinSecret(streams_->options().security.secrets_folder, secret_port_);
  if (server_ == nullptr) return;
  desk_->EndAll();
  // Cancels all calls that are left at the time-out.
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::milliseconds(streams_->options().close_timeout_ms));
  streams_->WaitUntilEmpty();
  desk_->WaitUntilEmpty();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CentralControl>> ListenGrpc(const std::string& address,
                                                           const GrpcControlOptions& options,
                                                           EventLoop* timers,
                                                           CentralControlObserver* observer) {
  auto central = std::make_unique<GrpcCentralControl>(options, timers, observer);
  RUNNEL_RETURN_IF_ERROR(central->Listen(address));
  return central;
}

}  // namespace runnel
