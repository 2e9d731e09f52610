#pragma once

// TLS 1.3 of a server whose connections another library handles, such as one of HTTP. A client may show a
// certificate of the cluster; it need not.

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/crypto/certificate.h"
#include "proto/crypto/identity.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct ssl_st;      // OpenSSL's SSL

namespace runnel {

// Makes a new context serve with the identity's certificate. A client without a certificate gets its
// connection; one with a certificate that the identity's authority has not signed gets none.
absl::Status PrepareHttps(const Identity& identity, ssl_ctx_st& context);

// The certificate that the client of an accepted connection has shown. NotFound: it has shown none.
absl::StatusOr<CertificateInfo> ClientOf(const ssl_st& connection);

}  // namespace runnel
