#pragma once

// The service of members.proto; included by grpc_control_server.cc only.

#include <memory>

#include "grpcpp/grpcpp.h"
#include "proto/transport/grpc/control/grpc_control_streams.h"

namespace runnel {

// Carries out GrpcOrders::members for authorised callers. `streams` outlives it.
std::unique_ptr<grpc::Service> MakeMembersService(Streams* streams);

}  // namespace runnel
