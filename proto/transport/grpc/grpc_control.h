#pragma once

// The control plane over gRPC (control.proto): one bidirectional stream per worker.

#include <cstdint>
#include <memory>

#include "proto/transport/control/control_channel.h"

namespace runnel {

struct GrpcControlOptions {
  // Nothing listens or dials beyond loopback as long as the streams are not encrypted:
  // PermissionDenied.
  bool allow_non_loopback = false;
  // A stream that has not said hello by then is closed.
  int64_t hello_deadline_ms = 10'000;
  // How long closing in order may take before the peer is cut off. A connection whose buffers are
  // full since the peer reads nothing goes only after keepalive_timeout_ms more.
  int64_t close_timeout_ms = 2'000;
  // A killed process shows at once; a host that vanished or a stopped process shows after a ping
  // (sent when nothing came for keepalive_ms) stayed unanswered for keepalive_timeout_ms.
  int64_t keepalive_ms = 5'000;
  int64_t keepalive_timeout_ms = 10'000;
  // More streams than this at once are refused.
  int max_streams = 1'024;
};

// Addresses: "127.0.0.1:7000", "localhost:7000", "[::1]:7000"; port 0 to listen on one that is
// free.
std::unique_ptr<ControlTransport> MakeGrpcControl(const GrpcControlOptions& options);

}  // namespace runnel
