#pragma once

// TLS 1.3 as both ends of the join door speak it. Included by proto/crypto only.

#include "absl/status/statusor.h"
#include "proto/crypto/identity.h"
#include "proto/crypto/openssl.h"

namespace runnel {

// Shows the identity's certificate and its authority's behind it.
absl::StatusOr<OwnedSslContext> ServingContext(const Identity& identity);
// A context that accepts any peer: the caller checks the certificate.
absl::StatusOr<OwnedSslContext> DiallingContext();

}  // namespace runnel
