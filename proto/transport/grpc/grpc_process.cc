#include "proto/transport/grpc/grpc_process.h"

#include <grpc/support/log.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

constexpr size_t kMaxLogBytes = 512;

// A server that listens nowhere: it holds gRPC's threads for callbacks.
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

std::atomic<RefusalLog*> g_refusals{nullptr};

// Numbers (ports, times, sources' lines) differ from peer to peer; the text does not.
void LogLine(gpr_log_func_args* line) {
  RefusalLog* const refusals = g_refusals;
  if (refusals == nullptr || line->severity < GPR_LOG_SEVERITY_ERROR) return;
  std::string text(line->message);
  std::erase_if(text, [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
  refusals->Refused(absl::StrCat("gRPC: ", absl::CEscape(text.substr(0, kMaxLogBytes))));
}

}  // namespace

void LogGrpcTo(RefusalLog* refusals) {
  g_refusals = refusals;
  gpr_set_log_function(LogLine);
}

void KeepGrpcForTheProcess() {
  // Never destroyed; volatile, so that leak checkers see the pointer.
  static const Holder* volatile holder = new Holder;
  (void)holder;
}

}  // namespace runnel
