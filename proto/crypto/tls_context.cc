#include "proto/crypto/tls_context.h"

#include <openssl/pem.h>

#include <utility>

#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::StatusOr<OwnedSslContext> NewContext(const SSL_METHOD* method) {
  OwnedSslContext context(SSL_CTX_new(method));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1)
    return OpenSslError("TLS");
  return context;
}

}  // namespace

absl::Status PrepareServing(const Identity& identity, SSL_CTX& context) {
  const OwnedBio key_text = ReadOnlyBio(identity.key_pem);
  const OwnedKey key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  const OwnedBio text = ReadOnlyBio(identity.certificate_pem);
  const OwnedCertificate certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  const OwnedBio authority_text = ReadOnlyBio(identity.authority_pem);
  OwnedCertificate authority(PEM_read_bio_X509(authority_text.get(), nullptr, nullptr, nullptr));
  if (key == nullptr || certificate == nullptr || authority == nullptr ||
      SSL_CTX_set_min_proto_version(&context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_use_certificate(&context, certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(&context, key.get()) != 1 ||
      SSL_CTX_add_extra_chain_cert(&context, authority.get()) != 1) {
    return OpenSslError("TLS");
  }
  authority.release();  // the context owns it now
  // No tickets: nobody comes twice.
  SSL_CTX_set_num_tickets(&context, 0);
  SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_OFF);
  return absl::OkStatus();
}

absl::StatusOr<OwnedSslContext> ServingContext(const Identity& identity) {
  RUNNEL_ASSIGN_OR_RETURN(OwnedSslContext context, NewContext(TLS_server_method()));
  RUNNEL_RETURN_IF_ERROR(PrepareServing(identity, *context));
  return context;
}

absl::StatusOr<OwnedSslContext> DiallingContext() { return NewContext(TLS_client_method()); }

}  // namespace runnel
