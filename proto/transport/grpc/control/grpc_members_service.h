#pragma once

// The service of members.proto; included by grpc_control_server.cc only.

#include <memory>

#include "grpcpp/grpcpp.h"
#include "proto/transport/grpc/control/grpc_control_streams.h"

namespace runnel {

// Carries out GrpcOrders::members of whoever may give orders. `streams` outlives it.
std::unique_ptr<grpc::Service> MakeMembersService(Streams* streams);

}  // namespace runnel
