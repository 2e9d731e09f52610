#include "proto/transport/grpc/security/grpc_renew.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/control.grpc.pb.h"
#include "proto/transport/grpc/grpc_process.h"
#include "proto/transport/grpc/security/grpc_security.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

// The peer chose the text: as it is it may not reach a terminal.
absl::Status ToAbsl(const grpc::Status& status, const std::string& central) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(
      static_cast<absl::StatusCode>(status.error_code()),
      absl::StrCat("central at ", central, ": ", absl::CEscape(status.error_message())));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> Dial(const std::string& central,
                                                    const GrpcSecurity& security) {
  if (!security.encrypts()) return absl::FailedPreconditionError("needs an identity");
  RUNNEL_RETURN_IF_ERROR(CheckOwnCertificate(*security.identity));
  RUNNEL_ASSIGN_OR_RETURN(const Address address, ParseAddress(central));
  KeepGrpcForTheProcess();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto credentials = ChannelCredentials(security, CentralSubject(), arguments);
  return grpc::CreateCustomChannel(address.ToString(), credentials, arguments);
}

void SetDeadline(grpc::ClientContext& context, int64_t timeout_ms) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
  context.set_wait_for_ready(true);
}

}  // namespace

absl::StatusOr<std::string> RenewCertificate(const std::string& central,
                                             const GrpcSecurity& security,
                                             const std::string& request_pem, int64_t timeout_ms) {
  RUNNEL_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, Dial(central, security));
  grpc::ClientContext context;
  SetDeadline(context, timeout_ms);
  proto::RenewRequest request;
  request.set_request_pem(request_pem);
  proto::RenewReply reply;
  const grpc::Status status = proto::Control::NewStub(channel)->Renew(&context, request, &reply);
  RUNNEL_RETURN_IF_ERROR(ToAbsl(status, central));
  return reply.certificate_pem();
}

absl::Status RevokeAt(const std::string& central, const GrpcSecurity& security,
                      const std::string& name, int64_t timeout_ms) {
  RUNNEL_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, Dial(central, security));
  grpc::ClientContext context;
  SetDeadline(context, timeout_ms);
  proto::RevokeRequest request;
  request.set_name(name);
  proto::RevokeReply reply;
  return ToAbsl(proto::Admin::NewStub(channel)->Revoke(&context, request, &reply), central);
}

}  // namespace runnel
