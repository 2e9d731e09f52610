#pragma once

// Short calls to a central beside the control stream: a worker's certificate is renewed, an
// operator gives an order. Each is answered before it returns. Only with an identity: central knows
// by the certificate who asks.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/transport/grpc/grpc_options.h"

namespace runnel {

// Most that a request for a certificate may have.
inline constexpr size_t kMaxRenewBytes = 1024;

// Another certificate for the worker whose identity is in `security`; request_pem: NewRequest.
// Unavailable: central does not answer. PermissionDenied: it refused, why, or the identity's
// certificate does not hold now, and central is not asked.
absl::StatusOr<std::string> RenewCertificate(const std::string& central,
                                             const GrpcSecurity& security,
                                             const std::string& request_pem, int64_t timeout_ms);

// Asks central to revoke a worker's certificates. Errors as RenewCertificate; NotFound: no worker
// of that name.
absl::Status RevokeAt(const std::string& central, const GrpcSecurity& security,
                      const std::string& name, int64_t timeout_ms);

}  // namespace runnel
