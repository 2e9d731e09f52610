#pragma once

// The control plane over gRPC (control.proto): one bidirectional stream per worker.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/log.h"
#include "proto/transport/control/control_channel.h"
#include "proto/transport/control/members.h"
#include "proto/transport/grpc/grpc_options.h"

namespace runnel {

// Services of a central with an identity for holders of certificates. Any thread; errors reach the
// caller.
struct GrpcOrders {
  // Another certificate for a worker.
  std::function<absl::StatusOr<std::string>(const CertificateInfo& worker,
                                            const std::string& request_pem)>
      renew;
  // Takes a worker's certificates away.
  std::function<absl::Status(const std::string& name)> revoke;
  // Also offered by a central without an identity, on loopback.
  MemberCalls members = {};
};

struct GrpcControlOptions {
  // Beyond loopback although streams are not encrypted, if the network is trusted (a lab). Else:
  // PermissionDenied.
  bool allow_non_loopback = false;
  GrpcSecurity security = {};
  GrpcOrders orders = {};
  // A stream that has not said hello by then is closed; of more than max_strangers such streams
  // the oldest is.
  int64_t hello_deadline_ms = 5'000;
  int max_strangers = 32;
  // Longest time of closing in order before the peer is cut off. A connection whose peer reads
  // nothing goes only after keepalive_timeout_ms more.
  int64_t close_timeout_ms = 2'000;
  // A killed process shows at once. A vanished host or a stopped process shows by its missing
  // heartbeats, judged by their rhythm: at central by the detector (detector.h), at a worker by
  // SilenceWatch, which ends the connection, not the stream. Connections that neither sees, such as
  // those of strangers, end when a ping (sent when nothing came for keepalive_ms) stays unanswered
  // for keepalive_timeout_ms. gRPC takes these two as constants only, so they are long enough for
  // links whose buffers hold seconds.
  int64_t keepalive_ms = 5'000;
  int64_t keepalive_timeout_ms = 10'000;
  // A worker's logger: told when central does not answer, and when it does again. Borrowed; may be
  // null.
  Logger* logger = nullptr;
  // A worker whose connection broke dials again: for so long, or until nobody has listened at
  // central's port for refused_ms. 0: a stream ends with its connection.
  int64_t resume_ms = 900'000;
  int64_t refused_ms = 2'000;
  // More streams than this at once are refused.
  int max_streams = 1'024;
};

// Addresses: "127.0.0.1:7000", "localhost:7000", "[::1]:7000"; port 0 to listen on one that is
// free.
std::unique_ptr<ControlTransport> MakeGrpcControl(const GrpcControlOptions& options);

}  // namespace runnel
