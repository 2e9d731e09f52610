#pragma once

// Security options of both transports over gRPC, without gRPC's types.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/base/refusal_log.h"
#include "proto/crypto/certificate.h"
#include "proto/crypto/identity.h"

namespace runnel {

struct GrpcSecurity {
  // Null: plain text.
  std::shared_ptr<const IdentityHolder> identity;
  // Asked of every stream that is accepted, and of control streams once a second while they last;
  // null: a certificate of the cluster is enough. Any thread.
  std::function<absl::Status(const CertificateInfo&)> check_peer;
  // Plain text: folder of the files with join secrets; empty: control streams need none.
  std::string secrets_folder = {};
  // Null: refusals are not logged. It outlives the transport.
  RefusalLog* refusals = nullptr;

  bool encrypts() const { return identity != nullptr; }
};

}  // namespace runnel
