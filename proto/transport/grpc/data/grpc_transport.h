#pragma once

// Frames over gRPC: one bidirectional stream of raw bytes a connection, each connection with a TCP
// connection of its own. The messages are those of frame_assembler.h. Payloads are handed to gRPC
// by reference and copied once, on the receiving side, into a block of a pool.

#include <cstdint>
#include <memory>

#include "proto/base/tensor/payload.h"
#include "proto/transport/grpc/grpc_options.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// Payload bytes a message, measured: tests/bench/bench_transport.
inline constexpr int64_t kDefaultChunkBytes = int64_t{512} << 10;

struct GrpcTransportOptions {
  // Beyond loopback although streams are not encrypted, if the network is trusted (a lab).
  bool allow_non_loopback = false;
  GrpcSecurity security = {};
  // Size of sent pieces, in [4 KiB, kMaxChunkBytes].
  int64_t chunk_bytes = kDefaultChunkBytes;
  // Pool for received payloads; it outlives the transport. Null: a pool of the transport.
  BufferPool* pool = nullptr;
  // A peer that is silent this long is asked whether it lives, and gets as long to answer.
  int64_t keepalive_ms = 10000;
  // Longest attempt to connect: several fit into the time after which a link is given up, so that
  // lost packets of one attempt do not cost the link.
  int64_t connect_attempt_ms = 5000;
};

// Beyond the contract of Transport: Listen and Dial return PermissionDenied for an address that is
// not on the loopback interface, unless streams are encrypted or the options allow it. Observers
// are called on one thread for all connections of the transport (a second one for each further
// listener, or if it dials before it listens): what one observer takes, all others wait. The
// listeners go before the transport; destroying either breaks what still stands and waits for it,
// so not within a call of an observer.
std::unique_ptr<Transport> MakeGrpcTransport(const GrpcTransportOptions& options);

}  // namespace runnel
