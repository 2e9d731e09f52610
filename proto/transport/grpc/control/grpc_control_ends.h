#pragma once

// The common part of both ends of the gRPC control plane; included by grpc_control*.cc only.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "proto/transport/control/control_channel.h"
#include "proto/transport/grpc/control/grpc_control.h"
#include "proto/transport/link/event_loop.h"
#include "proto/transport/link/port_probe.h"

namespace runnel {

// Messages travel as bytes that we parse ourselves: gRPC would take a message that cannot be parsed
// for the end of the stream.
grpc::ByteBuffer ToBuffer(const std::string& bytes);
std::string ToBytes(const grpc::ByteBuffer& buffer);

// Metadata of a call, with which a worker shows central's secret (join_secret.h).
inline constexpr char kJoinSecretKey[] = "runnel-join-secret";
// Metadata of a call: which stream of the worker's it carries, a secret of the worker's. Without it
// the stream ends with its connection.
inline constexpr char kSessionKey[] = "runnel-session";
// Metadata of a call of a stream that had a connection before, and of the answer to any call: how
// many of the peer's messages have come.
inline constexpr char kReceivedKey[] = "runnel-received";

// The status in gRPC's type, its message cut to fit a header.
grpc::Status ToGrpc(const absl::Status& status);

// `timers` runs on a thread of its own and outlives the result; the rest as ControlTransport.
absl::StatusOr<std::unique_ptr<CentralControl>> ListenGrpc(const std::string& address,
                                                           const GrpcControlOptions& options,
                                                           EventLoop* timers,
                                                           CentralControlObserver* observer);
absl::StatusOr<std::unique_ptr<WorkerControl>> ConnectGrpc(const std::string& address,
                                                           int64_t timeout_ms,
                                                           const GrpcControlOptions& options,
                                                           EventLoop* timers, PortProbe* ports,
                                                           WorkerControlObserver* observer);

}  // namespace runnel
