#include "proto/transport/grpc/security/grpc_security.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/crypto/certificate.h"

namespace runnel {
namespace {

// Seconds between a listener's looks for a renewed certificate.
constexpr unsigned kRefreshSeconds = 300;
constexpr int kHandshakePatienceMs = 5'000;
// A connection without a stream.
constexpr int kIdleMs = 15'000;
constexpr int kMaxMetadataBytes = 4 << 10;
// What one listener buffers of all its connections together.
constexpr size_t kMostServerBytes = size_t{64} << 20;

std::shared_ptr<grpc::experimental::CertificateProviderInterface> ProviderOf(
    const IdentityHolder& holder) {
  using grpc::experimental::FileWatcherCertificateProvider;
  using grpc::experimental::StaticDataCertificateProvider;
  if (!holder.folder().empty()) {
    const std::string file = holder.folder() + "/identity.pem";
    return std::make_shared<FileWatcherCertificateProvider>(
        file, file, holder.folder() + "/authority.pem", kRefreshSeconds);
  }
  const Identity identity = holder.Get();
  return std::make_shared<StaticDataCertificateProvider>(
      identity.authority_pem, std::vector<grpc::experimental::IdentityKeyCertPair>{
                                  {identity.key_pem, identity.certificate_pem}});
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const GrpcSecurity& security) {
  if (!security.encrypts()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(ProviderOf(*security.identity));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const GrpcSecurity& security,
                                                             const Subject& peer,
                                                             grpc::ChannelArguments& arguments) {
  if (!security.encrypts()) return grpc::InsecureChannelCredentials();
  const Identity identity = security.identity->Get();
  // gRPC compares this name with the one in the peer's certificate.
  arguments.SetSslTargetNameOverride(peer.HostName());
  return grpc::SslCredentials({identity.authority_pem, identity.key_pem, identity.certificate_pem});
}

absl::Status CheckOwnCertificate(const IdentityHolder& identity) {
  const Identity own = identity.Get();
  const absl::Status status =
      VerifySignature(own.certificate_pem, own.authority_pem, SystemWallClock()());
  if (status.ok()) return status;
  const bool is_operators = identity.info().subject.role == Role::kOperator;
  return absl::Status(status.code(),
                      is_operators
                          ? absl::StrCat("the operator's ", status.message(),
                                         "; central renews it when it starts: copy the folder "
                                         "`operator` of its --home again")
                          : absl::StrCat("this device's ", status.message()));
}

void BoundStrangers(grpc::ServerBuilder& builder) {
  // gRPC puts a message together before anybody sees that it is no hello.
  grpc::ResourceQuota quota;
  quota.Resize(kMostServerBytes);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakePatienceMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
}

absl::StatusOr<CertificateInfo> PeerOf(const grpc::AuthContext& context,
                                       const GrpcSecurity& security) {
  const std::vector<grpc::string_ref> shown = context.FindPropertyValues("x509_pem_cert");
  if (!context.IsPeerAuthenticated() || shown.size() != 1)
    return absl::PermissionDeniedError("no certificate was shown");
  absl::StatusOr<CertificateInfo> info =
      ReadCertificate({shown.front().data(), shown.front().size()});
  if (!info.ok()) return absl::PermissionDeniedError(info.status().message());
  if (security.check_peer != nullptr) {
    if (absl::Status status = security.check_peer(*info); !status.ok()) return status;
  }
  return info;
}

}  // namespace runnel
