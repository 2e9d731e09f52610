#pragma once

// Who may speak to this process over gRPC, and how its streams are protected. Two ways:
//
//   with an identity     TLS both ways: either end shows a certificate of the same cluster, or
//                        there is no connection. Every stream knows who is at the other end
//   without              plain text, which nothing listens to or dials beyond loopback. There any
//                        user of the host could dial: whoever dials a control port shows what is in
//                        a file that only the user who runs central can read (join_secret.h)
//
// gRPC 1.51 has faults that a peer who speaks HTTP/2 can use. With an identity no stranger gets so
// far: before the handshake is done gRPC reads nothing but TLS.

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/transport/grpc/grpc_options.h"

namespace runnel {

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const GrpcSecurity& security);
// Credentials of a channel to `peer`: with an identity no other certificate is accepted.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials(const GrpcSecurity& security,
                                                             const Subject& peer,
                                                             grpc::ChannelArguments& arguments);

// Of the identity that dials, before it dials: with a certificate that does not hold gRPC says no more
// than that the handshake failed. PermissionDenied names the reason and what to do.
absl::Status CheckOwnCertificate(const IdentityHolder& identity);

// Bounds a peer that has not said hello yet.
void BoundStrangers(grpc::ServerBuilder& builder);

// The certificate at the other end of an accepted stream. PermissionDenied: a certificate of
// another cluster, or one that GrpcSecurity::check_peer refuses. Only with an identity.
absl::StatusOr<CertificateInfo> PeerOf(const grpc::AuthContext& context,
                                       const GrpcSecurity& security);

}  // namespace runnel
