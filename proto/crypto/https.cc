#include "proto/crypto/https.h"

#include <openssl/pem.h>

#include "proto/base/status_macros.h"
#include "proto/crypto/openssl.h"
#include "proto/crypto/tls_context.h"

namespace runnel {

absl::Status PrepareHttps(const Identity& identity, ssl_ctx_st& context) {
  RUNNEL_RETURN_IF_ERROR(PrepareServing(identity, context));
  const OwnedBio text = ReadOnlyBio(identity.authority_pem);
  const OwnedCertificate authority(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  if (authority == nullptr ||
      X509_STORE_add_cert(SSL_CTX_get_cert_store(&context), authority.get()) != 1) {
    return OpenSslError("HTTPS");
  }
  SSL_CTX_set_verify(&context, SSL_VERIFY_PEER, nullptr);
  return absl::OkStatus();
}

absl::StatusOr<CertificateInfo> ClientOf(const ssl_st& connection) {
  X509* const shown = SSL_get0_peer_certificate(&connection);
  if (shown == nullptr) return absl::NotFoundError("the client has shown no certificate");
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_X509(bio.get(), shown) != 1)
    return OpenSslError("the client's certificate");
  return ReadCertificate(TextOf(bio.get()));
}

}  // namespace runnel
