#pragma once

// TLS 1.3 as both ends of the join door speak it. Included by proto/crypto only.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/crypto/identity.h"
#include "proto/crypto/openssl.h"

namespace runnel {

// Makes a new context serve TLS 1.3: it shows the identity's certificate and its authority's behind it.
absl::Status PrepareServing(const Identity& identity, SSL_CTX& context);
// A context of that kind.
absl::StatusOr<OwnedSslContext> ServingContext(const Identity& identity);
// A context that accepts any peer: the caller checks the certificate.
absl::StatusOr<OwnedSslContext> DiallingContext();

}  // namespace runnel
