#include "proto/transport/grpc/control/grpc_members.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/identity.h"
#include "proto/members.grpc.pb.h"
#include "proto/transport/control/processor_convert.h"
#include "proto/transport/grpc/control/grpc_control_ends.h"
#include "proto/transport/grpc/grpc_process.h"
#include "proto/transport/grpc/security/grpc_security.h"
#include "proto/transport/grpc/security/join_secret.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

constexpr int kMaxReplyBytes = 64 << 20;  // traces

// Shared by all calls of one operator.
class Calls {
 public:
  Calls(std::string central, const std::shared_ptr<grpc::Channel>& channel, std::string secret,
        int64_t timeout_ms)
      : central_(std::move(central)),
        stub_(proto::Members::NewStub(channel)),
        secret_(std::move(secret)),
        timeout_ms_(timeout_ms) {}

  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (proto::Members::Stub::*method)(grpc::ClientContext*,
                                                                 const Request&, Reply*),
                    const Request& request, Reply& reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms_));
    if (!secret_.empty()) context.AddMetadata(kJoinSecretKey, secret_);
    const grpc::Status status = ((*stub_).*method)(&context, request, &reply);
    if (status.ok()) return absl::OkStatus();
    // The peer chose the text: as it is it may not reach a terminal.
    const std::string message = absl::CEscape(status.error_message());
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      return absl::UnavailableError(
          absl::StrCat("no central answers at ", central_,
                       ": is that its control address, and does a run or `runnel-central serve` go "
                       "on there? (",
                       message, ")"));
    }
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat("central at ", central_, ": ", message));
  }

  absl::StatusOr<MemberList> List() {
    proto::ListMembersReply reply;
    RUNNEL_RETURN_IF_ERROR(Call(&proto::Members::Stub::List, proto::ListMembersRequest(), reply));
    MemberList list{{}, reply.step(), reply.paused()};
    for (const proto::Member& member : reply.members()) {
      list.members.push_back({absl::CEscape(member.name()), absl::CEscape(member.state()),
                              absl::CEscape(member.address()),
                              absl::CEscape(member.numerics_class()), member.memory_bytes(),
                              member.local(), member.relayed()});
      RUNNEL_ASSIGN_OR_RETURN(list.members.back().processors,
                              FromProto("processor_list", member.processor_list()));
      list.members.back().backend_options = absl::CEscape(member.backend_options());
      list.members.back().limits = absl::CEscape(member.limits());
    }
    return list;
  }
  absl::Status Drain(const std::string& name) {
    proto::DrainRequest request;
    request.set_name(name);
    proto::DrainReply reply;
    return Call(&proto::Members::Stub::Drain, request, reply);
  }
  absl::Status Pause(bool paused) {
    proto::PauseRequest request;
    request.set_paused(paused);
    proto::PauseReply reply;
    return Call(&proto::Members::Stub::Pause, request, reply);
  }
  absl::StatusOr<std::string> Status() {
    proto::StatusReply reply;
    RUNNEL_RETURN_IF_ERROR(Call(&proto::Members::Stub::Status, proto::StatusRequest(), reply));
    return reply.state_json();
  }
  absl::StatusOr<std::string> Trace(int64_t window_ms) {
    proto::MembersTraceRequest request;
    request.set_window_ms(window_ms);
    proto::MembersTraceReply reply;
    RUNNEL_RETURN_IF_ERROR(Call(&proto::Members::Stub::Trace, request, reply));
    return reply.trace_json();
  }
  absl::StatusOr<std::string> WhatIf(const std::string& assumption) {
    proto::WhatIfRequest request;
    request.set_assumption(assumption);
    proto::WhatIfReply reply;
    RUNNEL_RETURN_IF_ERROR(Call(&proto::Members::Stub::WhatIf, request, reply));
    return reply.answer();
  }
  absl::Status Stop(bool is_sure) {
    proto::StopRequest request;
    request.set_is_sure(is_sure);
    proto::StopReply reply;
    return Call(&proto::Members::Stub::Stop, request, reply);
  }
  absl::Status Replan() {
    proto::ReplanReply reply;
    return Call(&proto::Members::Stub::Replan, proto::ReplanRequest(), reply);
  }
  absl::Status GiveWay() {
    proto::GiveWayReply reply;
    return Call(&proto::Members::Stub::GiveWay, proto::GiveWayRequest(), reply);
  }

 private:
  const std::string central_;
  const std::unique_ptr<proto::Members::Stub> stub_;
  const std::string secret_;
  const int64_t timeout_ms_;
};

}  // namespace

absl::StatusOr<MemberCalls> MembersAt(const std::string& central, const GrpcSecurity& security,
                                      int64_t timeout_ms) {
  RUNNEL_ASSIGN_OR_RETURN(const Address address, ParseAddress(central));
  if (!security.encrypts() && !address.is_loopback()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--central ", central,
        ": beyond 127.0.0.1 orders need the operator's certificate (folder `operator` "
        "of --home), which `runnel-central init` makes. A central without certificates "
        "takes orders on its page alone (--metrics-port), and Ctrl-C"));
  }
  if (security.encrypts()) RUNNEL_RETURN_IF_ERROR(CheckOwnCertificate(*security.identity));
  KeepGrpcForTheProcess();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(kMaxReplyBytes);
  const auto credentials = ChannelCredentials(security, CentralSubject(), arguments);
  std::string secret;
  if (!security.encrypts())
    secret = ReadJoinSecret(security.secrets_folder, address.port).value_or("");
  auto calls = std::make_shared<Calls>(
      central, grpc::CreateCustomChannel(address.ToString(), credentials, arguments),
      std::move(secret), timeout_ms);
  return MemberCalls{[calls] { return calls->List(); },
                     [calls](const std::string& name) { return calls->Drain(name); },
                     [calls](bool paused) { return calls->Pause(paused); },
                     [calls] { return calls->Status(); },
                     [calls] { return calls->GiveWay(); },
                     [calls](const std::string& assumption) { return calls->WhatIf(assumption); },
                     [calls](int64_t window_ms) { return calls->Trace(window_ms); },
                     [calls](bool is_sure) { return calls->Stop(is_sure); },
                     [calls] { return calls->Replan(); }};
}

}  // namespace runnel
