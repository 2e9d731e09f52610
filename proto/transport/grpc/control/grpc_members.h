#pragma once

// An operator's calls to a central, over gRPC. With an identity: by the operator's certificate.
// Else only on loopback, by the secret of central's port (join_secret.h).

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/transport/control/members.h"
#include "proto/transport/grpc/grpc_options.h"

namespace runnel {

// Calls of the central at this control address; each takes at most timeout_ms. InvalidArgument: the
// address makes no sense, or is not on this host and there is no identity. PermissionDenied: the
// identity's certificate does not hold now. Of the calls: Unavailable: no central of this cluster
// answers; where one answers that there is no run, FailedPrecondition.
absl::StatusOr<MemberCalls> MembersAt(const std::string& central, const GrpcSecurity& security,
                                      int64_t timeout_ms);

}  // namespace runnel
