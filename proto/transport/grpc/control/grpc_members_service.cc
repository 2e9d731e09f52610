#include "proto/transport/grpc/control/grpc_members_service.h"

#include <string>

#include "proto/base/worker_name.h"
#include "proto/members.grpc.pb.h"
#include "proto/transport/control/processor_convert.h"

namespace runnel {
namespace {

absl::Status NoRun() { return absl::FailedPreconditionError("this central takes no such orders"); }

class MembersService final
    : public proto::Members::WithCallbackMethod_List<proto::Members::WithCallbackMethod_Drain<
          proto::Members::WithCallbackMethod_Pause<proto::Members::WithCallbackMethod_Status<
              proto::Members::WithCallbackMethod_GiveWay<proto::Members::WithCallbackMethod_Trace<
                  proto::Members::WithCallbackMethod_WhatIf<proto::Members::WithCallbackMethod_Stop<
                      proto::Members::WithCallbackMethod_Replan<proto::Members::Service>>>>>>>>> {
 public:
  explicit MembersService(Streams* streams) : streams_(streams) {}

  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const proto::ListMembersRequest*,
                                 proto::ListMembersReply* reply) override {
    return Answer(context, [&] {
      if (calls().list == nullptr) return NoRun();
      absl::StatusOr<MemberList> list = calls().list();
      if (list.ok()) Fill(*list, *reply);
      return list.status();
    });
  }
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const proto::DrainRequest* request, proto::DrainReply*) override {
    return Answer(context, [&] {
      if (absl::Status status = CheckWorkerName("name", request->name()); !status.ok())
        return status;
      return calls().drain == nullptr ? NoRun() : calls().drain(request->name());
    });
  }
  grpc::ServerUnaryReactor* Pause(grpc::CallbackServerContext* context,
                                  const proto::PauseRequest* request, proto::PauseReply*) override {
    return Answer(context, [&] {
      return calls().pause == nullptr ? NoRun() : calls().pause(request->paused());
    });
  }
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const proto::StatusRequest*,
                                   proto::StatusReply* reply) override {
    return Answer(context, [&] {
      if (calls().status == nullptr) return NoRun();
      absl::StatusOr<std::string> state = calls().status();
      if (state.ok()) reply->set_state_json(*std::move(state));
      return state.status();
    });
  }

  grpc::ServerUnaryReactor* GiveWay(grpc::CallbackServerContext* context,
                                    const proto::GiveWayRequest*, proto::GiveWayReply*) override {
    return Answer(context,
                  [&] { return calls().give_way == nullptr ? NoRun() : calls().give_way(); });
  }

  grpc::ServerUnaryReactor* Trace(grpc::CallbackServerContext* context,
                                  const proto::MembersTraceRequest* request,
                                  proto::MembersTraceReply* reply) override {
    return Answer(context, [&] {
      if (calls().trace == nullptr) return NoRun();
      absl::StatusOr<std::string> trace = calls().trace(request->window_ms());
      if (trace.ok()) reply->set_trace_json(*std::move(trace));
      return trace.status();
    });
  }

  grpc::ServerUnaryReactor* WhatIf(grpc::CallbackServerContext* context,
                                   const proto::WhatIfRequest* request,
                                   proto::WhatIfReply* reply) override {
    return Answer(context, [&] {
      if (calls().what_if == nullptr) return NoRun();
      absl::StatusOr<std::string> answer = calls().what_if(request->assumption());
      if (answer.ok()) reply->set_answer(*std::move(answer));
      return answer.status();
    });
  }

  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const proto::StopRequest* request, proto::StopReply*) override {
    return Answer(context, [&] {
      return calls().stop == nullptr ? NoRun() : calls().stop(request->is_sure());
    });
  }

  grpc::ServerUnaryReactor* Replan(grpc::CallbackServerContext* context,
                                   const proto::ReplanRequest*, proto::ReplanReply*) override {
    return Answer(context, [&] { return calls().replan == nullptr ? NoRun() : calls().replan(); });
  }

 private:
  const MemberCalls& calls() const { return streams_->options().orders.members; }

  template <typename AnswerFn>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, AnswerFn answer) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    absl::Status status = streams_->CheckOperator(*context);
    if (status.ok()) status = answer();
    // UNAVAILABLE is what a caller hears of an address where nobody answers.
    if (absl::IsUnavailable(status)) status = absl::FailedPreconditionError(status.message());
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  static void Fill(const MemberList& list, proto::ListMembersReply& reply) {
    reply.set_step(list.step);
    reply.set_paused(list.paused);
    for (const Member& member : list.members) {
      proto::Member& row = *reply.add_members();
      row.set_name(member.name);
      row.set_state(member.state);
      row.set_address(member.address);
      row.set_numerics_class(member.numerics_class);
      row.set_memory_bytes(member.memory_bytes);
      row.set_local(member.local);
      row.set_relayed(member.relayed);
      *row.mutable_processor_list() = ToProto(member.processors);
      row.set_backend_options(member.backend_options);
      row.set_limits(member.limits);
    }
  }

  Streams* streams_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMembersService(Streams* streams) {
  return std::make_unique<MembersService>(streams);
}

}  // namespace runnel
